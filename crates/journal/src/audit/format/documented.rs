//! `docs/audit/format.md`: its examples are lines of this format, and its tables have their fields, in their order.

use std::collections::BTreeSet;

use serde::Serialize;

use super::line::{self, EventKind};
use super::phrases::PHRASES;
use super::segment_event::{CheckpointSeal, Damaged, Expired, Seal, SegmentHeader};
use super::{decode, escape, frame};
use crate::audit::tree::lines::is_checkpoint;

const PAGE: &str = include_str!("../../../../../docs/audit/format.md");

/// All kinds, each with the beginnings of its headings.
const KINDS: [(EventKind, &[&str]); 8] = [
    (EventKind::Header, &["header: "]),
    (EventKind::Use, &["u: ", "c: "]),
    (EventKind::Outcome, &["o: "]),
    (EventKind::Record, &["r: ", "record: "]),
    (EventKind::Seal, &["seal: ", "seal of segment 0: "]),
    (EventKind::Carried, &["carried: "]),
    (EventKind::Expired, &["expired: "]),
    (EventKind::Damaged, &["damaged: "]),
];

/// The place of a kind in the list. A new kind is missed here by the compiler, and then by the tests on the page.
fn place(kind: EventKind) -> usize {
    match kind {
        EventKind::Header => 0,
        EventKind::Use => 1,
        EventKind::Outcome => 2,
        EventKind::Record => 3,
        EventKind::Seal => 4,
        EventKind::Carried => 5,
        EventKind::Expired => 6,
        EventKind::Damaged => 7,
    }
}

/// A part of the page about lines of one form.
struct Section {
    heading: String,
    /// First and second column of its table.
    rows: Vec<(String, String)>,
    /// Lines of the journal.
    examples: Vec<String>,
}

fn sections() -> Vec<Section> {
    let section = |text: &str| {
        let (heading, rest) = text.split_once('\n').unwrap();
        let rows = rest.lines().filter(|line| line.starts_with("| ") && !line.starts_with("| field"));
        let cells = |row: &str| {
            let mut cells = row.trim_matches('|').split(" | ").map(|cell| cell.trim().to_owned());
            (cells.next().unwrap(), cells.next().unwrap())
        };
        let examples = rest.split("```text\n").skip(1).flat_map(|block| block.split("```").next().unwrap().lines());
        Section {
            heading: heading.to_owned(),
            rows: rows.map(cells).collect(),
            examples: examples.map(|line| line.replace('⇥', "\t")).collect(),
        }
    };
    PAGE.split("\n## ").skip(1).map(section).filter(|section| !section.examples.is_empty()).collect()
}

/// The line that is written for what was read.
fn written(event: &impl Serialize, n: u64) -> String {
    let mut line = Vec::new();
    frame::with_serialized(event, |body| frame::Line::write_line(&body, n, &mut line));
    String::from_utf8(line).unwrap().trim_end().to_owned()
}

/// Reads a line as the product does; in JSON, as it would be written again.
fn read(line: &str, kind: EventKind, n: u64) -> Option<String> {
    let bytes = line.as_bytes();
    if !frame::is_json(bytes) {
        let is_read = decode::verified_use(bytes).is_some() || decode::verified_outcome(bytes).is_some();
        return is_read.then(|| line.to_owned());
    }
    Some(match kind {
        EventKind::Header => written(&serde_json::from_slice::<SegmentHeader<'_>>(bytes).ok()?, n),
        EventKind::Seal if is_checkpoint(bytes) => {
            written(&serde_json::from_slice::<CheckpointSeal<'_>>(bytes).ok()?, n)
        }
        EventKind::Seal => written(&serde_json::from_slice::<Seal<'_>>(bytes).ok()?, n),
        EventKind::Expired => written(&serde_json::from_slice::<Expired<'_>>(bytes).ok()?, n),
        EventKind::Damaged => written(&serde_json::from_slice::<Damaged<'_>>(bytes).ok()?, n),
        EventKind::Record | EventKind::Carried => written(&decode::verified_use(bytes)?, n),
        EventKind::Use | EventKind::Outcome => return None,
    })
}

/// The keys of a line in JSON, in their order, without those of the frame.
fn keys(line: &str) -> Vec<String> {
    let value: serde_json::Map<String, serde_json::Value> = serde_json::from_str(line).unwrap();
    let mut keys: Vec<(usize, String)> =
        value.keys().map(|key| (line.find(&format!("\"{key}\":")).unwrap(), key.clone())).collect();
    keys.sort_unstable();
    keys.into_iter().map(|(_, key)| key).filter(|key| !["n", "crc"].contains(&key.as_str())).collect()
}

/// Number of fields of a compact line by its table, with the one of the trace or the token.
fn field_count(rows: &[(String, String)]) -> usize {
    rows.iter().map(|(_, value)| value.split_once(" fields, ").map_or(1, |(count, _)| count.parse().unwrap())).sum()
}

#[test]
fn every_kind_of_line_is_on_the_page_with_examples_that_are_read() {
    let mut seen = BTreeSet::new();
    for (at, (kind, headings)) in KINDS.iter().enumerate() {
        assert_eq!(place(*kind), at);
        for heading in *headings {
            let sections = sections();
            let section = sections.iter().find(|section| section.heading.starts_with(heading));
            let section = section.unwrap_or_else(|| panic!("the page has no section `{heading}`"));
            for example in &section.examples {
                let n = frame::verify_line(example.as_bytes());
                let n = n.unwrap_or_else(|| panic!("the frame of {example}"));
                assert_eq!(line::event_kind(example.as_bytes()), Some(*kind), "{example}");
                assert_eq!(read(example, *kind, n).as_ref(), Some(example));
            }
            seen.insert(section.heading.clone());
        }
    }
    let documented: BTreeSet<String> = sections().into_iter().map(|section| section.heading).collect();
    assert_eq!(documented, seen, "the page has a section of no kind");
}

#[test]
fn tables_of_the_page_have_the_fields_in_their_order() {
    for Section { heading, rows, examples } in sections() {
        let is_json = |example: &String| frame::is_json(example.as_bytes());
        if !examples.iter().all(is_json) {
            let most = field_count(&rows);
            let is_optional = |(name, _): &&(String, String)| ["trace", "token", "cost", "budget"].contains(&&**name);
            let least = most - rows.iter().rev().take_while(is_optional).count();
            let counts: BTreeSet<usize> = examples.iter().map(|line| line.split('\t').count() - 2).collect();
            assert!(counts.iter().all(|count| (least..=most).contains(count)), "{heading}");
            let has_budget = rows.iter().any(|(name, _)| name == "budget");
            assert!(!has_budget || counts.contains(&most), "{heading}: a field of the table is in no example");
            continue;
        }
        let columns = rows.iter().flat_map(|(column, _)| column.split('`').skip(1).step_by(2));
        let columns: Vec<String> = columns.map(str::to_owned).collect();
        let in_examples: Vec<Vec<String>> = examples.iter().map(|line| keys(line)).collect();
        for keys in &in_examples {
            let in_table: Vec<&String> = columns.iter().filter(|column| keys.contains(column)).collect();
            assert_eq!(in_table, keys.iter().collect::<Vec<_>>(), "{heading}");
        }
        let shown = |column: &String| in_examples.iter().any(|keys| keys.contains(column));
        assert!(columns.iter().all(shown), "{heading}: a field of the table is in no example");
    }
}

#[test]
fn phrases_and_bounds_of_the_page_are_those_of_the_format() {
    for (letter, phrase) in PHRASES {
        assert!(PAGE.contains(&format!("| `\\{letter}` | `{phrase}` |\n")), "{phrase}");
    }
    for (text, cap) in [
        ("user agent", escape::USER_AGENT_CAP),
        ("action", escape::ACTION_CAP),
        ("actor", escape::ACTOR_CAP),
        ("method", escape::METHOD_CAP),
        ("path", escape::PATH_CAP),
    ] {
        assert!(PAGE.contains(&format!("| {text} | {cap} |\n")), "{text}");
    }
}
