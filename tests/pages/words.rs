//! The words of what people read: *request* where the code says *use*.

use std::fs;
use std::path::{Path, PathBuf};

use crate::links::pages;
use crate::support::files::files;

/// The list of changes, which has a rhythm of its own.
const CHANGES: &str = "CHANGELOG.md";
/// Pages about the code, which says `use`.
const OF_CODE: [&str; 3] = ["docs/development", "benches", "CONTRIBUTING.md"];

/// Words before `use` that make it a noun.
const BEFORE_USE: [&str; 12] =
    ["a", "an", "each", "every", "per", "one", "no", "the", "its", "open", "admitted", "refused"];
/// Words before `uses` that make it a noun.
const BEFORE_USES: [&str; 12] =
    ["the", "its", "their", "these", "such", "all", "of", "only", "open", "admitted", "refused", "matching"];

/// The text with a word in place of each code span, and without the targets of links.
fn without_code(text: &str) -> String {
    let mut out: String =
        text.split('`').enumerate().map(|(place, span)| if place % 2 == 0 { span } else { "CODE" }).collect();
    while let Some(at) = out.find("](") {
        let end = out[at..].find(')').map_or(out.len(), |end| at + end + 1);
        out.replace_range(at..end, "");
    }
    out
}

/// The noun `use` of the code, and open things without a name.
fn dialect(text: &str) -> Vec<String> {
    let mut found: Vec<String> = ["what is open", "What is open"]
        .iter()
        .filter(|words| text.contains(**words))
        .map(|words| (*words).to_owned())
        .collect();
    // Words that belong together are in one sentence, cell or text.
    for clause in without_code(text).split(['.', ':', ';', '|', '"', '(']) {
        let words: Vec<&str> = clause
            .split(|c: char| !c.is_alphanumeric() && c != '_' && c != '-')
            .filter(|word| !word.is_empty())
            .collect();
        for pair in words.windows(2) {
            let before = pair[0].to_lowercase();
            let is_noun = match pair[1] {
                "use" => BEFORE_USE.contains(&&*before),
                "uses" => BEFORE_USES.contains(&&*before),
                _ => false,
            };
            if is_noun {
                found.push(pair.join(" "));
            }
        }
        if words.first() == Some(&"Uses") {
            found.push(words[..words.len().min(3)].join(" "));
        }
    }
    found
}

/// The text of a page, a definition or a template that people read: without blocks, names of members and tags.
fn shown(path: &Path) -> String {
    let text = fs::read_to_string(path).unwrap();
    match path.extension().and_then(|extension| extension.to_str()) {
        Some("md") if !path.ends_with("cli.md") => text.split("```").step_by(2).collect(),
        Some("json") => {
            let is_text = |line: &&str| {
                ["\"description\":", "\"summary\":"].iter().any(|name| line.trim_start().starts_with(name))
            };
            text.lines().filter(is_text).collect::<Vec<_>>().join("\n")
        }
        Some("html") => text
            .split(['<', '{'])
            .filter_map(|part| part.split_once(['>', '}']))
            .map(|(_, text)| text)
            .collect::<Vec<_>>()
            .join("|"),
        Some("yaml") => {
            text.lines().filter_map(|line| line.split_once("# ")).map(|(_, text)| text).collect::<Vec<_>>().join(" ")
        }
        _ => text,
    }
}

#[test]
fn people_read_of_requests_and_not_of_uses() {
    let mut all: Vec<PathBuf> = pages();
    all.retain(|page| page != Path::new(CHANGES) && !OF_CODE.iter().any(|place| page.starts_with(place)));
    all.extend(["docs/openapi.json", "config/keygate.yaml"].map(PathBuf::from));
    all.extend(files(Path::new("crates/control/src/dashboard/pages/templates")));
    let found: Vec<String> = all
        .iter()
        .flat_map(|path| dialect(&shown(path)).into_iter().map(move |words| format!("{}: {words}", path.display())))
        .collect();
    assert!(all.len() > 40, "only {} files were found", all.len());
    assert!(found.is_empty(), "{} places:\n{}", found.len(), found.join("\n"));
}

#[test]
fn noun_is_told_from_the_verb() {
    let verbs = "Use one key for each. Use it. A primary uses one core; keys that are in use, and `the use` of code";
    assert_eq!(dialect(verbs), Vec::<String>::new());
    assert_eq!(
        dialect("Every use is there, and of the uses\none; what is open ends: Uses of a key"),
        ["what is open", "Every use", "the uses", "Uses of a"]
    );
}
