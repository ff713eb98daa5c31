//! The house: what the layers, the imports and the sizes of the code hold to.

mod imports;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use imports::Imports;
use syn::visit::{self, Visit};

/// The modules of the crate from top to bottom, each with exactly those that it imports. A new import is a new entry here,
/// made on purpose.
#[rustfmt::skip]
const IMPORTS: &[(&str, &[&str])] = &[
    ("main", &["cli"]),
    ("bin", &["query_store", "transport", "telemetry", "cli_docs", "identity", "clock", "counted"]),
    ("cli", &["app", "doctor", "config", "admin", "management", "migration", "shipping", "query_store", "upstream", "audit", "state", "settings", "postgresql", "metrics", "telemetry", "cli_docs", "refusal", "problem", "names", "identity", "key", "quota", "clock", "page", "counted"]),
    ("app", &["accept_errors", "config", "gateway", "admin", "dashboard", "admission", "management", "migration", "shipping", "transport", "forward", "upstream", "audit", "state", "settings", "tls", "request_body", "metrics", "telemetry", "failed_auth", "identity", "key", "session", "quota", "clock", "counted"]),
    ("doctor", &["config", "admin", "admission", "upstream", "audit", "state", "settings", "tls", "disk", "key", "clock", "counted"]),
    ("config", &["dashboard", "admission", "management", "shipping", "transport", "forward", "upstream", "oidc", "audit", "state", "settings", "postgresql", "outbound", "tls", "telemetry", "identity", "quota", "secret"]),
    ("gateway", &["admission", "transport", "forward", "upstream", "audit", "state", "request_body", "metrics", "telemetry", "failed_auth", "refusal", "problem", "head_fields", "trace_context", "identity", "key", "quota", "clock"]),
    ("admin", &["accept_errors", "management", "migration", "shipping", "upstream", "audit", "state", "metrics", "problem", "identity", "key", "clock", "page", "abort_on_drop"]),
    ("dashboard", &["management", "forward", "oidc", "audit", "settings", "metrics", "failed_auth", "problem", "identity", "key", "session", "clock", "secret", "page", "quota", "abort_on_drop"]),
    ("admission", &["state", "metrics", "refusal", "identity", "key", "session", "quota", "clock"]),
    ("management", &["migration", "audit", "state", "settings", "metrics", "names", "identity", "key", "session", "quota", "clock", "secret", "page", "counted"]),
    ("migration", &["state", "names", "identity", "key", "quota", "clock"]),
    ("shipping", &["audit", "postgresql", "outbound", "tls", "telemetry", "metrics", "clock", "secret"]),
    ("query_store", &["transport", "postgresql", "settings", "metrics", "telemetry", "problem", "identity", "clock", "secret", "page"]),
    ("transport", &["accept_errors", "tls", "metrics", "byte_stream", "http2_frames", "timer", "head_fields", "http_syntax", "identity"]),
    ("forward", &["telemetry", "head_fields", "http_syntax", "value_text", "identity", "session"]),
    ("upstream", &["telemetry", "tls", "request_body", "metrics", "byte_stream", "http2_frames", "timer", "head_fields", "http_syntax", "abort_on_drop", "clock"]),
    ("oidc", &["outbound", "tls", "session", "clock", "secret"]),
    ("audit", &["postgresql", "outbound", "disk", "tls", "metrics", "refusal", "trace_context", "identity", "key", "clock", "counted"]),
    ("state", &["disk", "settings", "tls", "refusal", "names", "identity", "key", "session", "quota", "clock", "secret", "page", "counted"]),
    ("telemetry", &["outbound", "tls", "metrics", "trace_context", "identity", "key", "clock", "secret"]),
    ("outbound", &["tls", "abort_on_drop"]),
    ("postgresql", &["settings", "tls", "secret"]),
    ("tls", &["settings", "clock", "secret"]),
    ("settings", &["secret"]),
    ("request_body", &["metrics", "timer"]),
    ("metrics", &["refusal"]),
    ("cli_docs", &[]),
    ("byte_stream", &[]),
    ("http2_frames", &[]),
    ("abort_on_drop", &[]),
    ("accept_errors", &[]),
    ("timer", &[]),
    ("failed_auth", &["identity", "quota", "clock"]),
    ("disk", &[]),
    ("refusal", &["problem", "identity"]),
    ("problem", &["trace_context"]),
    ("head_fields", &["http_syntax"]),
    ("http_syntax", &[]),
    ("trace_context", &[]),
    ("value_text", &[]),
    ("counted", &[]),
    ("names", &["identity"]),
    ("identity", &["key"]),
    ("key", &["secret"]),
    ("session", &["secret"]),
    ("quota", &[]),
    ("page", &[]),
    ("clock", &[]),
    ("secret", &[]),
];

/// Serves requests.
const DATA_PLANE: &[&str] = &["gateway", "admission"];
/// Changes what requests are decided by.
const CONTROL_PLANE: &[&str] = &["admin", "dashboard", "management", "oidc"];
/// Mechanisms: the planes put them together.
const MECHANISMS: &[&str] = &["transport", "forward", "upstream", "oidc", "audit", "state"];

/// Lines of a file before its tests.
const FILE_LINES: usize = 300;
/// Lines of a file of tests.
const TEST_FILE_LINES: usize = 400;
/// Lines of a function, from its name to its last brace.
const FUNCTION_LINES: usize = 60;
/// The same, where requests pass.
const DATA_PATH_LINES: usize = 40;
const DATA_PATH: &[&str] = &["gateway", "admission", "transport", "forward", "upstream", "audit", "state"];

#[test]
fn imports_between_modules_are_exactly_those_of_the_table() {
    let table: BTreeMap<&str, BTreeSet<&str>> =
        IMPORTS.iter().map(|(module, imported)| (*module, imported.iter().copied().collect())).collect();
    let imports = Imports::of_crate(Path::new("src"));
    let mut found: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for (file, imported) in imports.edges() {
        let module = module_of(file);
        let others = imported.into_iter().map(module_of).filter(|other| *other != module && *other != "lib");
        found.entry(module).or_default().extend(others);
    }
    found.remove("lib");
    let line = |module: &&str| format!("{module}: table {:?}, code {:?}", table.get(module), found.get(module));
    let modules: BTreeSet<&str> = table.keys().chain(found.keys()).copied().collect();
    let wrong: Vec<String> =
        modules.iter().filter(|module| table.get(*module) != found.get(*module)).map(line).collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn imports_between_modules_go_strictly_down() {
    for (number, (module, imported)) in IMPORTS.iter().enumerate() {
        let below: Vec<&str> = IMPORTS[number + 1..].iter().map(|(below, _)| *below).collect();
        let up: Vec<_> = imported.iter().filter(|other| !below.contains(other)).collect();
        assert!(up.is_empty(), "{module} imports {up:?}, which are not below it");
    }
}

#[test]
fn planes_and_mechanisms_do_not_import_each_other() {
    for (module, imported) in IMPORTS {
        let forbidden: Vec<&str> = match *module {
            data if DATA_PLANE.contains(&data) => CONTROL_PLANE.to_vec(),
            // The control plane uses mechanisms; oidc is one itself.
            control if CONTROL_PLANE.contains(&control) && control != "oidc" => DATA_PLANE.to_vec(),
            mechanism if MECHANISMS.contains(&mechanism) => [DATA_PLANE, CONTROL_PLANE, MECHANISMS].concat(),
            _ => continue,
        };
        let wrong: Vec<_> = imported.iter().filter(|other| forbidden.contains(other)).collect();
        assert!(wrong.is_empty(), "{module} imports {wrong:?}");
    }
}

#[test]
fn imports_between_files_form_no_circle() {
    let imports = Imports::of_crate(Path::new("src"));
    let edges = imports.edges();
    let count: usize = edges.values().map(BTreeSet::len).sum();
    assert!(count > 1000, "only {count} imports were found: the test does not see them");
    let circles: Vec<String> = edges.keys().filter_map(|file| circle_through(file, &edges)).collect();
    assert!(circles.is_empty(), "{}", circles.join("\n"));
}

/// The shortest way from a file back to itself, if there is one.
fn circle_through<'a>(file: &'a Path, edges: &BTreeMap<&'a Path, BTreeSet<&'a Path>>) -> Option<String> {
    let mut before: BTreeMap<&Path, &Path> = BTreeMap::new();
    let mut next = vec![file];
    while !next.is_empty() && !before.contains_key(file) {
        let mut reached = Vec::new();
        for from in next {
            for to in &edges[from] {
                if !before.contains_key(to) {
                    before.insert(to, from);
                    reached.push(*to);
                }
            }
        }
        next = reached;
    }
    let mut way = vec![file, *before.get(file)?];
    while way.last() != Some(&file) {
        way.push(before[way.last().expect("it begins with the file")]);
    }
    way.reverse();
    Some(way.iter().map(|file| file.display().to_string()).collect::<Vec<_>>().join(" -> "))
}

#[test]
fn files_begin_with_their_documentation() {
    let silent: Vec<PathBuf> = rust_files(Path::new("src"))
        .into_iter()
        .filter(|file| !fs::read_to_string(file).unwrap().starts_with("//!"))
        .collect();
    assert!(silent.is_empty(), "{silent:?}");
}

#[test]
fn files_and_functions_stay_small() {
    let mut wrong = Vec::new();
    for file in rust_files(Path::new("src")) {
        let text = fs::read_to_string(&file).unwrap();
        let code = text.lines().take_while(|line| *line != "#[cfg(test)]").count();
        if code > FILE_LINES {
            wrong.push(format!("{}: {code} lines before its tests", file.display()));
        }
        let limit = if DATA_PATH.contains(&module_of(&file)) { DATA_PATH_LINES } else { FUNCTION_LINES };
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

/// The module of the crate that a file of `src/` belongs to.
fn module_of(file: &Path) -> &str {
    let below = file.strip_prefix("src").expect("all files are in src");
    let first = below.components().next().expect("a file has a name").as_os_str().to_str().expect("names are ASCII");
    first.trim_end_matches(".rs")
}

fn rust_files(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files.extend(rust_files(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
    files
}
