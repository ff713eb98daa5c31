//! The house: what the compiler cannot hold. The walls between crates are in their `Cargo.toml`.

mod columns;
mod style;

use std::fs;
use std::path::{Path, PathBuf};

use syn::visit::{self, Visit};

use crate::support::files::rust_files;

/// Lines of a file before its tests.
const FILE_LINES: usize = 300;
/// Lines of a file of tests.
const TEST_FILE_LINES: usize = 400;
/// Lines of a function, from its name to its last brace.
const FUNCTION_LINES: usize = 60;
/// The same, where requests pass.
const DATA_PATH_LINES: usize = 40;
const DATA_PATH: &[&str] = &[
    "src/gateway",
    "src/admission",
    "crates/edge/src",
    "crates/upstream/src",
    "crates/journal/src/audit",
    "crates/redis-client/src",
    "crates/envoy-wire/src",
    "crates/state/src",
];
/// Of the last one, what requests do not pass.
const MIGRATION: &str = "crates/state/src/migration";

#[test]
fn data_plane_does_not_import_the_control_plane() {
    let is_import = |line: &&str| line.contains("control::") && !line.trim_start().starts_with("//");
    for room in ["src/gateway", "src/admission"] {
        for file in rust_files(Path::new(room)) {
            let text = fs::read_to_string(&file).unwrap();
            let imports: Vec<&str> = text.lines().filter(is_import).collect();
            assert!(imports.is_empty(), "{}: {imports:?}", file.display());
        }
    }
}

#[test]
fn files_begin_with_their_documentation() {
    let silent: Vec<PathBuf> =
        product_files().into_iter().filter(|file| !fs::read_to_string(file).unwrap().starts_with("//!")).collect();
    assert!(silent.is_empty(), "{silent:?}");
}

#[test]
fn files_and_functions_stay_small() {
    let mut wrong = Vec::new();
    for file in product_files() {
        let text = fs::read_to_string(&file).unwrap();
        let code = text.lines().take_while(|line| *line != "#[cfg(test)]").count();
        if code > FILE_LINES {
            wrong.push(format!("{}: {code} lines before its tests", file.display()));
        }
        let limit = if is_on_data_path(&file) { DATA_PATH_LINES } else { FUNCTION_LINES };
        let mut long = LongFunctions { limit, code, found: Vec::new() };
        long.visit_file(&syn::parse_file(&text).unwrap());
        wrong.extend(long.found.into_iter().map(|found| format!("{}: {found}", file.display())));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn files_of_tests_stay_small() {
    let files = rust_files(Path::new("tests")).into_iter().map(|file| (fs::read_to_string(&file).unwrap(), file));
    let lines = files.map(|(text, file)| (text.lines().count(), file));
    let long: Vec<_> = lines.filter(|(lines, _)| *lines > TEST_FILE_LINES).collect();
    assert!(long.is_empty(), "{long:?}");
}

/// Collects the functions that are longer than a limit, tests apart.
struct LongFunctions {
    limit: usize,
    /// Lines before the tests.
    code: usize,
    found: Vec<String>,
}

impl LongFunctions {
    fn check(&mut self, name: &syn::Ident, block: &syn::Block) {
        let (first, last) = (name.span().start().line, block.brace_token.span.close().end().line);
        let lines = last - first + 1;
        if lines > self.limit && first <= self.code {
            self.found.push(format!("{name} has {lines} lines"));
        }
    }
}

impl<'ast> Visit<'ast> for LongFunctions {
    fn visit_item_fn(&mut self, function: &'ast syn::ItemFn) {
        self.check(&function.sig.ident, &function.block);
        visit::visit_item_fn(self, function);
    }

    fn visit_impl_item_fn(&mut self, function: &'ast syn::ImplItemFn) {
        self.check(&function.sig.ident, &function.block);
        visit::visit_impl_item_fn(self, function);
    }
}

fn is_on_data_path(file: &Path) -> bool {
    DATA_PATH.iter().any(|room| file.starts_with(room)) && !file.starts_with(MIGRATION)
}

/// The files of the gateway and of all crates.
fn product_files() -> Vec<PathBuf> {
    [rust_files(Path::new("src")), rust_files(Path::new("crates"))].concat()
}
