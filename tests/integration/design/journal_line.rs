//! `docs/development/design/journal-line.md`: one use, from its line in the open segment to its proof out of the
//! compressed one.

use std::fs;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use journal::audit::{Filter, LatestCheckpoint, Reader, Settings, Use};
use tempfile::TempDir;

use crate::journal::checkpoints::{assert_proven, lines, signed};
use crate::journal::support::{
    Caller, END, block_on, open_journal, open_reader, segment_files, wait_until_compressed, write_uses,
};
use crate::journal::tree::{self, Hash};
use crate::support::{Story, eventually, until};

/// Size at which a segment is closed: between those of the first five and of the first six lines of the example, which
/// are a header, which does not count, two uses, an outcome and two checkpoints. Measured from a journal with the same
/// lines.
fn segment_size() -> u64 {
    let directory = TempDir::new().unwrap();
    let (settings, _) = signed(directory.path());
    write_uses(&settings, 1);
    let lines = lines(&settings);
    let length = |begin: &str| lines.iter().find(|line| line.starts_with(begin)).unwrap().len() + 1;
    let [begun, ended, checkpoint] = ["u\t", "o\t", r#"{"e":"seal""#].map(length);
    (begun + ended + 2 * checkpoint + begun / 2) as u64
}

/// A line of the journal as the page has it: what differs from run to run has a name.
fn shown(line: &str) -> String {
    if line.starts_with('{') {
        let value: serde_json::Value = serde_json::from_str(line).unwrap();
        return match (value["e"].as_str().unwrap(), value["segment"].as_u64().unwrap()) {
            ("seal", 0) => format!("seal of all {} lines before: NOTE  n {}", value["lines"], value["n"]),
            (event, segment) => format!("{event} of segment {segment}  n {}", value["n"]),
        };
    }
    let mut fields: Vec<&str> = line.split('\t').collect();
    let last = fields.len() - 1;
    for (at, name) in [(1, "ID"), (last, "CRC")] {
        fields[at] = name;
    }
    if fields[0] == "u" {
        for (at, name) in [(2, "TIME"), (6, "KEY"), (7, "USER"), (8, "ORG")] {
            fields[at] = name;
        }
    }
    fields.join("⇥")
}

/// The outcome of the only record.
fn outcome(settings: &Settings) -> String {
    let records = Reader::open(&settings.path).unwrap().list(&Filter::default(), 10, None).unwrap().records;
    let [record] = &*records else { panic!("{records:?}") };
    serde_json::to_value(record.outcome).unwrap().as_str().unwrap().to_owned()
}

fn covering(settings: &Settings, size: u64) -> LatestCheckpoint {
    until("a checkpoint covers the lines", || {
        LatestCheckpoint::read(&settings.path).unwrap().filter(|latest| latest.size >= size)
    })
}

/// Names of the hashes of a tree of four leaves.
fn hash_names(leaves: &[Hash]) -> Vec<(String, &'static str)> {
    let [first, second, third, fourth] = leaves else { panic!("{} leaves", leaves.len()) };
    let (left, right) = (tree::node(first, second), tree::node(third, fourth));
    let named = [(*first, "L0"), (*second, "L1"), (*third, "L2"), (*fourth, "L3"), (left, "N01"), (right, "N23")];
    named.into_iter().map(|(hash, name)| (STANDARD.encode(hash), name)).collect()
}

#[test]
fn journal_line_is_sealed_and_proven_as_its_page_tells_it() {
    let directory = TempDir::new().unwrap();
    let (settings, key) = signed(directory.path());
    let settings = Settings { segment_size: segment_size(), ..settings };
    let mut story = Story::of("journal-line.md");
    let (journal, caller) = (open_journal(&settings), Caller::random());
    let opening = Use { path: "/1", ..caller.opening() };
    let entry = block_on(journal.begin(&opening)).unwrap();
    let written = lines(&settings);
    story.tell(format!("line 1   {}", shown(&written[0])));
    story.tell(format!("line 2   {}", shown(&written[1])));
    story.tell(format!("         the request is forwarded; the record is {}", outcome(&settings)));

    let first = covering(&settings, 2);
    eventually("the checkpoint is a line", || lines(&settings).len() == 3);
    story.tell(format!("line 3   {}", shown(&lines(&settings)[2])));
    entry.close(END);
    let second = covering(&settings, 4);
    let written = lines(&settings);
    story.tell(format!("line 4   {}", shown(&written[3])));
    story.tell(format!("         the record is {}", outcome(&settings)));
    eventually("the checkpoint is a line", || lines(&settings).len() == 5);
    let written = lines(&settings);
    story.tell(format!("line 5   {}", shown(&written[4])));

    let leaves: Vec<Hash> = written[..4].iter().map(|line| tree::leaf(line.as_bytes())).collect();
    for (note, size) in [(&first, 2), (&second, 4)] {
        let root = STANDARD.encode(tree::root(&leaves[..size]));
        assert!(note.note.contains(&format!("\n{size}\n{root}\n")), "{}", note.note);
    }
    story.tell("tree     2 lines: root N01 = H(1, L0, L1), where L0 = H(0, line 1)");
    story.tell("tree     4 lines: root H(1, N01, N23)");

    let names = hash_names(&leaves);
    let proof = open_reader(&settings).prove(opening.id, &second.note).unwrap();
    for line in &proof.lines {
        let path: Vec<&str> = line
            .hashes
            .iter()
            .map(|hash| names.iter().find(|(known, _)| known == hash).expect("a hash of the tree").1)
            .collect();
        story.tell(format!("proof    line {}: index {} of 4, hashes {}", line.index + 1, line.index, path.join(", ")));
    }
    assert_eq!(proof.later_lines, 0);

    // The next use fills the segment; its outcome is in another one.
    block_on(journal.begin(&Use { path: "/2", ..caller.opening() })).unwrap().close(END);
    eventually("the next segment begins", || segment_files(&settings).len() == 2);
    wait_until_compressed(&settings);
    let seal = until("the seal is written", || {
        let open = fs::read_to_string(settings.path.join("0000000002.jsonl")).unwrap();
        let mut seals = open.lines().filter(|line| line.starts_with(r#"{"e":"seal","segment":1,"#));
        seals.next_back().filter(|line| line.contains(r#""compressed":true"#)).map(str::to_owned)
    });
    let seal: serde_json::Value = serde_json::from_str(&seal).unwrap();
    let file = fs::read(settings.path.join("0000000001.jsonl.zst")).unwrap();
    assert_eq!(seal["sha256"], data_encoding::HEXLOWER.encode(&<sha2::Sha256 as sha2::Digest>::digest(&file)));
    story.tell(format!(
        "line 6   the use of /2 fills segment 1: sealed with {} lines, SHA-256 of 0000000001.jsonl.zst, in segment 2",
        seal["lines"]
    ));
    let later = open_reader(&settings).prove(opening.id, &second.note).unwrap();
    assert_eq!(later.lines, proof.lines);
    for text in later.to_string().split("c2sp.org/tlog-proof@v1\n").skip(1) {
        tree::verify_proof(text, &key.to_string()).expect("the proof is right");
    }
    block_on(journal.close());
    let tree = assert_proven(&settings, &first.note, &key);
    story.tell(format!(
        "verify   the same proof out of the compressed segment; a checkpoint of {} lines holds",
        tree.covered
    ));
    story.end();
}
