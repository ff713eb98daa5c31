//! The house: imports go strictly down.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// What each module of the crate may name of it. The vocabulary may be named by all.
const MAY_IMPORT: &[(&str, &[&str])] = &[
    ("main", &["cli"]),
    ("cli", &["app", "config", "management", "admin", "audit", "migration", "state", "query_store", "transport"]),
    (
        "app",
        &[
            "config",
            "gateway",
            "admission",
            "admin",
            "dashboard",
            "management",
            "oidc",
            "transport",
            "forward",
            "upstream",
            "audit",
            "migration",
            "state",
        ],
    ),
    (
        "config",
        &[
            "gateway",
            "admission",
            "admin",
            "dashboard",
            "management",
            "oidc",
            "transport",
            "forward",
            "upstream",
            "audit",
            "state",
        ],
    ),
    ("gateway", &["admission", "transport", "forward", "upstream", "audit", "state"]),
    ("admin", &["management", "transport", "audit", "state"]),
    ("dashboard", &["management", "forward", "oidc", "audit", "state"]),
    ("admission", &["state"]),
    ("management", &["audit", "state"]),
    ("transport", &[]),
    ("forward", &[]),
    ("upstream", &[]),
    ("oidc", &[]),
    ("audit", &[]),
    ("migration", &["state"]),
    ("state", &[]),
    ("query_store", &["transport"]),
];
const VOCABULARY: &[&str] = &[
    "problem",
    "http_syntax",
    "timer",
    "request_body",
    "refusal",
    "byte_stream",
    "clock",
    "identity",
    "key",
    "session",
    "failed_auth",
    "quota",
    "secret",
    "settings",
    "tls",
    "metrics",
    "telemetry",
];

#[test]
fn imports_go_strictly_down() {
    let rules: BTreeMap<&str, &[&str]> = MAY_IMPORT.iter().copied().collect();
    let mut wrong = Vec::new();
    let mut seen = 0;
    for file in rust_files(Path::new("src")) {
        let module = module_of(&file);
        let text = fs::read_to_string(&file).unwrap();
        for (line, named) in named_modules(&text) {
            seen += 1;
            let vocabulary = VOCABULARY.contains(&named.as_str());
            let allowed = match rules.get(module.as_str()) {
                Some(allowed) => vocabulary || named == module || allowed.contains(&named.as_str()),
                None => vocabulary && VOCABULARY.contains(&module.as_str()),
            };
            if !allowed {
                wrong.push(format!("{}:{line}: {module} may not name {named}", file.display()));
            }
        }
    }
    assert!(seen > 100, "only {seen} imports were found: the test does not see them");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn every_file_says_what_it_is() {
    let silent: Vec<PathBuf> = rust_files(Path::new("src"))
        .into_iter()
        .filter(|file| !fs::read_to_string(file).unwrap().starts_with("//!"))
        .collect();
    assert!(silent.is_empty(), "{silent:?}");
}

/// The lines that name a module of the crate, and which.
fn named_modules(text: &str) -> Vec<(usize, String)> {
    let code = text.lines().enumerate().filter(|(_, line)| !line.trim_start().starts_with("//"));
    let mut named = Vec::new();
    for (number, line) in code {
        for root in ["crate::", "keygate::"] {
            for (at, _) in line.match_indices(root) {
                let rest = &line[at + root.len()..];
                named.extend(first_segments(rest).into_iter().map(|module| (number + 1, module)));
            }
        }
    }
    named
}

/// The first segments of a path, or of all the paths of a `{…}` group, as rustfmt writes it on one line.
fn first_segments(rest: &str) -> Vec<String> {
    let word = |text: &str| text.trim().chars().take_while(|c| c.is_ascii_lowercase() || *c == '_').collect::<String>();
    let words: Vec<String> = match rest.strip_prefix('{') {
        Some(group) => split_top(group).iter().map(|item| word(item)).collect(),
        None => vec![word(rest)],
    };
    words.into_iter().filter(|word| !word.is_empty()).collect()
}

/// The items of a group, split at the commas that are not inside of inner groups.
fn split_top(group: &str) -> Vec<String> {
    let (mut depth, mut items, mut item) = (0, Vec::new(), String::new());
    for c in group.chars() {
        match c {
            '{' => depth += 1,
            '}' if depth == 0 => break,
            '}' => depth -= 1,
            ',' if depth == 0 => {
                items.push(std::mem::take(&mut item));
                continue;
            }
            _ => {}
        }
        item.push(c);
    }
    items.push(item);
    items
}

/// The module of the crate that a file belongs to. Both programs' `main` files have rules of their own.
fn module_of(file: &Path) -> String {
    let inside = file.strip_prefix("src").unwrap();
    if inside.starts_with("bin") {
        return "query_store".into();
    }
    let first = inside.components().next().unwrap().as_os_str().to_str().unwrap();
    first.trim_end_matches(".rs").to_owned()
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
