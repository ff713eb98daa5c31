//! The words of what people read: short sentences, and *request* where the code says *use*.

use std::fs;
use std::path::{Path, PathBuf};

use crate::links::pages;
use crate::support::files::files;

/// Words of a sentence, on the average of a page.
const SENTENCE_WORDS: f64 = 15.0;
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

/// The number of words of each sentence outside of fenced blocks, tables and headings. A code span is a word, and the
/// lines before a list or a block end a sentence.
fn sentences(page: &str) -> Vec<usize> {
    let mut counts = Vec::new();
    for part in page.split("```").step_by(2) {
        let mut paragraph = String::new();
        for line in part.lines().map(|line| line.trim().trim_start_matches("> ")) {
            let is_text = !line.starts_with(['|', '<', '#']) && !line.is_empty();
            if !is_text || is_item(line) {
                count_words(&std::mem::take(&mut paragraph), &mut counts);
            }
            if is_text {
                paragraph.push_str(line);
                paragraph.push(' ');
            }
        }
        count_words(&paragraph, &mut counts);
    }
    counts
}

fn is_item(line: &str) -> bool {
    let after_number = line.trim_start_matches(|c: char| c.is_ascii_digit());
    line.starts_with("- ")
        || line.starts_with("* ")
        || after_number.len() < line.len() && after_number.starts_with(". ")
}

/// Adds the sentences of a paragraph.
fn count_words(paragraph: &str, counts: &mut Vec<usize>) {
    let mut words = 0;
    let text = without_code(paragraph);
    for word in text.split_whitespace() {
        words += usize::from(word.contains(char::is_alphanumeric));
        let end = word.trim_end_matches([')', '"', '*']);
        if words > 0 && end.ends_with(['.', '?', '!']) {
            counts.push(std::mem::take(&mut words));
        }
    }
    if words > 0 {
        counts.push(words);
    }
}

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

#[test]
fn sentences_of_a_page_have_fifteen_words_on_average() {
    let mut all = pages();
    all.retain(|page| page != Path::new(CHANGES));
    all.extend(files(Path::new("crates")).into_iter().filter(|path| path.ends_with("README.md")));
    let mut long = Vec::new();
    let mut count = 0;
    for page in all {
        let sentences = sentences(&fs::read_to_string(&page).unwrap());
        count += sentences.len();
        let average = sentences.iter().sum::<usize>() as f64 / sentences.len() as f64;
        if average > SENTENCE_WORDS {
            long.push(format!("{}: {average:.1} words in each of {} sentences", page.display(), sentences.len()));
        }
    }
    assert!(count > 2000, "only {count} sentences were found");
    assert!(long.is_empty(), "{}", long.join("\n"));
}

#[test]
fn sentence_ends_at_its_stop_and_before_a_list() {
    let page = "# A heading\n\nTwo words. Is `this one` three?\n> A quoted\n> line.\n\nA list:\n- one (of two).\n\n\
                | no | row |\n\n```\nno block.\n```\nThe [end](of/a.md).\n";
    assert_eq!(sentences(page), [2, 3, 3, 2, 3, 2]);
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
    all.extend(["docs/openapi.json", "docs/openapi-management.json", "config/keygate.yaml"].map(PathBuf::from));
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
