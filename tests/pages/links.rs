//! The links of the pages lead to files, the index has every page, and the tests and functions that pages name exist.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use crate::support::files::{files, rust_files};

#[test]
fn links_lead_to_files() {
    let mut count = 0;
    for page in pages() {
        let text = fs::read_to_string(&page).unwrap();
        for link in text.split("](").skip(1).map(|rest| rest.split(')').next().unwrap()) {
            if link.starts_with("http") || link.starts_with('#') {
                continue;
            }
            let (file, anchor) = link.split_once('#').unwrap_or((link, ""));
            let target = page.parent().unwrap().join(file);
            assert!(target.exists(), "{}: {link}", page.display());
            let headings = || headings(&fs::read_to_string(&target).unwrap());
            assert!(anchor.is_empty() || headings().contains(anchor), "{}: {link}", page.display());
            count += 1;
        }
    }
    assert!(count > 30, "only {count} links were found");
}

/// Code spans that are paths, such as `state/bucket.rs` or `edge/forward/`, name files and folders of the repository,
/// of `src/`, or of a crate's `src/`.
#[test]
fn architecture_and_glossary_name_files_that_exist() {
    let mut count = 0;
    for page in ["docs/development/architecture.md", "docs/development/glossary.md", "CONTRIBUTING.md"] {
        let text = fs::read_to_string(page).unwrap();
        let spans = text.split('`').skip(1).step_by(2).filter(|span| {
            let is_path = span.contains('/') && span.chars().all(|c| c.is_ascii_alphanumeric() || "/._-".contains(c));
            is_path && (span.ends_with(".rs") || span.ends_with(".lua") || span.ends_with('/'))
        });
        for span in spans.filter(|span| span.trim_end_matches('/').contains('/') || span.ends_with(".rs")) {
            count += 1;
            let (first, rest) = span.split_once('/').unwrap_or((span, ""));
            let places = [
                PathBuf::from(span),
                Path::new("src").join(span),
                Path::new("crates").join(first).join("src").join(rest),
            ];
            let exists = places.iter().any(|path| path.exists());
            assert!(exists, "{page}: `{span}`");
        }
    }
    assert!(count > 80, "only {count} paths were found");
}

/// The map has every crate, and every public module of the gateway and of the crates with several rooms.
#[test]
fn architecture_map_names_every_module() {
    let page = fs::read_to_string("docs/development/architecture.md").unwrap();
    let map = page.split("## Threads").next().unwrap();
    let mut modules = BTreeSet::new();
    for library in [
        "src",
        "crates/domain/src",
        "crates/platform/src",
        "crates/edge/src",
        "crates/journal/src",
        "crates/control/src",
    ] {
        let text = fs::read_to_string(format!("{library}/lib.rs")).unwrap();
        let names = text.lines().filter_map(|line| line.strip_prefix("pub mod ")?.strip_suffix(';'));
        modules.extend(names.map(str::to_owned));
    }
    assert!(modules.len() > 30, "only {} modules were found", modules.len());
    let places: Vec<&str> =
        map.split('`').skip(1).step_by(2).filter_map(|span| span.rsplit_terminator('/').next()).collect();
    let is_named = |module: &str| places.iter().any(|place| place.trim_end_matches(".rs") == module);
    let crates = fs::read_dir("crates").unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut missing: Vec<String> = crates.filter(|name| !map.contains(&format!("| `{name}`"))).collect();
    missing.extend(modules.into_iter().filter(|module| !is_named(module)));
    assert!(missing.is_empty(), "{missing:?}");
}

/// The anchors of a page: of its headings, and those that it has beside.
fn headings(text: &str) -> BTreeSet<String> {
    let lines = text.lines().filter(|line| line.starts_with('#'));
    let anchor = |line: &str| {
        let words = line.trim_start_matches('#').trim().to_lowercase().replace(' ', "-");
        words.chars().filter(|c| c.is_alphanumeric() || matches!(c, '-' | '_')).collect()
    };
    let beside = text.split("<a id=\"").skip(1).filter_map(|rest| rest.split('"').next()).map(str::to_owned);
    lines.map(anchor).chain(beside).collect()
}

/// Every name in the last column of the tables in `docs/security.md` is a test, or the beginning of
/// one, or a file of tests.
#[test]
fn security_page_names_tests_that_exist() {
    let (functions, files) = tests();
    let page = fs::read_to_string("docs/security.md").unwrap();
    let mut missing = Vec::new();
    let mut count = 0;
    for row in page.lines().filter(|line| line.starts_with("| ") && !line.starts_with("| threat")) {
        let column = row.trim_end_matches(" |").rsplit(" | ").next().unwrap();
        for name in column.split('`').skip(1).step_by(2).filter(|name| name.contains([':', '…', '/'])) {
            count += 1;
            let last = name.rsplit([':', ' ']).find(|part| !part.is_empty()).unwrap().trim_matches('…');
            let place = name.split("::").find(|part| !part.contains('…')).unwrap_or(name);
            let place = place.split(": ").next().unwrap().rsplit('/').next().unwrap();
            let exists = match last {
                "" => files.contains(name.trim_end_matches(['…', ':', ' ']).rsplit([':', '/', ' ']).next().unwrap()),
                last if name.ends_with('…') => functions.iter().any(|function| function.starts_with(last)),
                last => functions.contains(last) || files.contains(place) && last == place,
            };
            if !exists {
                missing.push(name.to_owned());
            }
        }
    }
    assert!(count > 100, "only {count} names were found");
    assert!(missing.is_empty(), "no such test:\n{}", missing.join("\n"));
}

/// The names of all functions, and of all files and folders, in which tests are.
fn tests() -> (BTreeSet<String>, BTreeSet<String>) {
    let (mut functions, mut files) = (BTreeSet::new(), BTreeSet::new());
    for file in ["tests", "src", "crates"].iter().flat_map(|folder| rust_files(Path::new(folder))) {
        let text = fs::read_to_string(&file).unwrap();
        let named = text.lines().filter_map(|line| line.trim_start().split_once("fn "));
        functions.extend(named.map(|(_, rest)| rest.split('(').next().unwrap().to_owned()));
        files.extend(
            file.components().map(|part| part.as_os_str().to_string_lossy().trim_end_matches(".rs").to_owned()),
        );
    }
    (functions, files)
}

/// Code spans of the examples' pages that are functions, scripts, tests or words of the contract name some that exist.
#[test]
fn design_pages_name_functions_that_exist() {
    let code: Vec<PathBuf> = CODE.iter().flat_map(|folder| files(Path::new(folder))).collect();
    let names: BTreeSet<&str> = code.iter().filter_map(|file| file.file_name()?.to_str()).collect();
    let text: String = code.iter().map(|file| fs::read_to_string(file).unwrap_or_default()).collect();
    let mut count = 0;
    for page in pages().into_iter().filter(|page| page.parent() == Some(Path::new("docs/development/design"))) {
        let page_text = fs::read_to_string(&page).unwrap();
        // Not the example, and not its limits.
        let prose = page_text.split("```").step_by(2).collect::<String>();
        for span in prose.split('`').skip(1).step_by(2) {
            let function = span.rsplit("::").next().unwrap();
            let is_function = span.contains("::") || function.contains('_');
            let is_name = span.chars().all(|c| c.is_ascii_alphanumeric() || "_:.".contains(c));
            let exists = match span.rsplit_once('.') {
                Some((_, "lua")) => names.contains(span),
                None if is_name && is_function => is_defined(&text, function) && is_defined_type(&text, span),
                _ => continue,
            };
            count += 1;
            assert!(exists, "{}: `{span}`", page.display());
        }
    }
    assert!(count > 50, "only {count} names were found");
}

/// Folders with code that the pages of `docs/development/design/` name.
const CODE: [&str; 3] = ["src", "crates", "tests"];

/// Returns whether a function of Rust or of Lua has this name, or a setting or a code.
fn is_defined(code: &str, name: &str) -> bool {
    ["fn ", "function "].iter().any(|word| code.contains(&format!("{word}{name}(")))
        || code.contains(&format!("fn {name}<"))
        || code.contains(&format!("\"{name}\""))
}

/// Returns whether the type of a function with a path exists.
fn is_defined_type(code: &str, span: &str) -> bool {
    span.split_once("::")
        .is_none_or(|(name, _)| ["struct", "enum"].iter().any(|word| code.contains(&format!("{word} {name}"))))
}

pub fn pages() -> Vec<PathBuf> {
    let docs = files(Path::new("docs")).into_iter().chain(files(Path::new("crates/query-store/docs")));
    let mut pages: Vec<PathBuf> =
        docs.filter(|path| path.extension().is_some_and(|extension| extension == "md")).collect();
    pages.extend(
        ["README.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md", "benches/README.md"].map(PathBuf::from),
    );
    pages
}

#[test]
fn index_names_every_page_and_prose_ends_at_160_columns() {
    let index = fs::read_to_string("docs/README.md").unwrap();
    let readme = fs::read_to_string("README.md").unwrap();
    let mut long = Vec::new();
    for page in pages().into_iter().filter(|page| page != Path::new("CHANGELOG.md")) {
        let name = page.strip_prefix("docs").unwrap_or(&page).display().to_string();
        let is_indexed = !page.starts_with("docs") || name == "README.md" || index.contains(&format!("]({name})"));
        assert!(is_indexed || page.starts_with("docs/development/design"), "docs/README.md does not name {name}");
        let is_linked = page.parent() != Some(Path::new("docs")) || readme.contains(&format!("](docs/{name})"));
        assert!(is_linked || name == "README.md", "README.md does not name {name}");
        let text = fs::read_to_string(&page).unwrap();
        // Fenced blocks are output and code, and a row of a table has one line.
        let prose = text.split("```").step_by(2).flat_map(str::lines).filter(|line| !line.starts_with(['|', '<']));
        long.extend(prose.filter(|line| line.chars().count() > 160).map(|line| format!("{}: {line}", page.display())));
    }
    assert!(long.is_empty(), "{} lines are too long:\n{}", long.len(), long.join("\n"));
}
