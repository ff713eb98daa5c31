//! Signed checkpoints of the journal: what they cover, proofs by them, and what `verify` finds with an old one.

use std::fs;
use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use journal::audit::{
    CheckpointCopies, Checkpoints, Journal, LatestCheckpoint, PublicKey, Settings, TreeReport, VerifyReport,
    generate_key,
};
use platform::metrics::Metrics;
use tempfile::TempDir;

use super::support::{
    Caller, END, all_records, assert_intact, block_on, keep_plain, open_journal, open_reader, segment_files, settings,
    wait_until_compressed, write_uses,
};
use super::tree::{self, Hash};
use crate::support::eventually;

/// Settings with a key, and segments of some ten uses.
pub fn signed(directory: &Path) -> (Settings, PublicKey) {
    let (private, public) = generate_key("example.org/gw-1").unwrap();
    let key_file = directory.join("key");
    fs::write(&key_file, &*private).unwrap();
    let checkpoints = Checkpoints { key_file, origin: Some("example.org/gw-1".into()), witnesses: Vec::new() };
    (Settings { segment_size: 3_000, checkpoints: Some(checkpoints), ..settings(directory) }, public)
}

pub(super) fn latest(settings: &Settings) -> LatestCheckpoint {
    LatestCheckpoint::read(&settings.path).unwrap().expect("there is a checkpoint")
}

pub(super) fn verify(settings: &Settings, note: &str, key: &PublicKey) -> (VerifyReport, TreeReport) {
    let mut copies = CheckpointCopies::default();
    copies.add(note, key).unwrap();
    open_reader(settings).verify_copies(&copies, key).unwrap()
}

/// Writes uses, and waits for a checkpoint that covers them: on a busy machine, the short last round of a journal that
/// is closed may not get there.
fn write_covered(settings: &Settings, count: usize) -> Vec<uuid::Uuid> {
    let (journal, caller, mut ids) = (open_journal(settings), Caller::random(), Vec::new());
    block_on(async {
        for _ in 0..count {
            let opening = caller.opening();
            journal.begin(&opening).await.unwrap().close(END);
            ids.push(opening.id);
        }
    });
    // Lines are numbered from 1, and the last one may be that of a checkpoint itself.
    let lines = journal.tap().next_line() - 2;
    eventually("a checkpoint covers the uses", || {
        LatestCheckpoint::read(&settings.path).unwrap().is_some_and(|latest| latest.size >= lines)
    });
    block_on(journal.close());
    ids
}

/// Checks that a journal has all lines of a checkpoint as they were.
pub fn assert_proven(settings: &Settings, note: &str, key: &PublicKey) -> TreeReport {
    let (report, tree) = verify(settings, note, key);
    assert_eq!((report.problems, &tree.problems[..]), (Vec::new(), &[][..]));
    assert!(tree.proven >= tree.covered && tree.lines >= tree.proven, "{tree:?}");
    tree
}

/// The lines of all segments, which are plain.
pub fn lines(settings: &Settings) -> Vec<String> {
    let text: String = segment_files(settings).iter().map(|path| fs::read_to_string(path).unwrap()).collect();
    text.lines().map(str::to_owned).collect()
}

#[test]
fn root_is_that_of_the_standard_over_all_lines() {
    let directory = TempDir::new().unwrap();
    let (settings, key) = signed(directory.path());
    keep_plain(&settings);
    write_uses(&settings, 40);
    let latest = latest(&settings);
    let lines = lines(&settings);
    let covered = usize::try_from(latest.size).unwrap();
    assert!(covered > 80 && covered <= lines.len(), "{covered} of {}", lines.len());
    let leaves: Vec<Hash> = lines[..covered].iter().map(|line| tree::leaf(line.as_bytes())).collect();
    let root = STANDARD.encode(tree::root(&leaves));
    assert!(
        latest.note.starts_with(&format!("example.org/gw-1\n{covered}\n{root}\n\n— example.org/gw-1 ")),
        "{latest:?}"
    );
    // The same note is a line of the journal.
    let seal = lines.iter().rev().find(|line| line.starts_with(r#"{"e":"seal","segment":0,"#)).unwrap();
    let seal: serde_json::Value = serde_json::from_str(seal).unwrap();
    assert_eq!((seal["lines"].as_u64(), seal["checkpoint"].as_str()), (Some(latest.size), Some(latest.note.as_str())));
    assert_proven(&settings, &latest.note, &key);
}

#[test]
fn old_checkpoint_holds_over_restarts_compression_and_kills() {
    let directory = TempDir::new().unwrap();
    let (settings, key) = signed(directory.path());
    write_uses(&settings, 30);
    let first = latest(&settings);
    let killed = TempDir::new().unwrap();
    let copy = Settings { path: killed.path().join("audit"), ..settings.clone() };
    block_on(async {
        let journal = open_journal(&settings);
        let caller = Caller::random();
        for _ in 0..50 {
            journal.begin(&caller.opening()).await.unwrap().close(END);
        }
        // As a kill leaves it: without the last checkpoint, and with a torn line.
        let _open = journal.begin(&caller.opening()).await.unwrap();
        tree::copy(&settings.path, &copy.path);
        let last = segment_files(&copy).pop().unwrap();
        let torn = fs::read(&last).unwrap().into_iter().chain(*b"u\ttorn").collect::<Vec<u8>>();
        fs::write(&last, torn).unwrap();
        journal.close().await;
    });
    write_uses(&copy, 20);
    assert_proven(&copy, &first.note, &key);
    assert_proven(&copy, &latest(&copy).note, &key);
    let second = latest(&settings);
    assert!(second.size > first.size);
    let journal = open_journal(&settings);
    wait_until_compressed(&settings);
    block_on(journal.close());
    let tree = assert_proven(&settings, &first.note, &key);
    assert!(tree.proven > tree.covered, "the checkpoints in the journal reach further: {tree:?}");
    assert_proven(&settings, &second.note, &key);
}

#[test]
fn checkpoint_comes_while_the_journal_is_open_and_not_without_new_lines() {
    let directory = TempDir::new().unwrap();
    let (settings, key) = signed(directory.path());
    let metrics = Metrics::new().audit;
    let journal = Journal::open(settings.clone(), metrics.clone()).unwrap();
    block_on(async { journal.begin(&Caller::random().opening()).await.unwrap().close(END) });
    // The header, the use and its outcome.
    eventually("a checkpoint covers the use", || {
        LatestCheckpoint::read(&settings.path).unwrap().is_some_and(|latest| latest.size >= 3)
    });
    let before = latest(&settings);
    assert_proven(&settings, &before.note, &key);
    block_on(journal.close());
    block_on(open_journal(&settings).close());
    block_on(open_journal(&settings).close());
    let signed = metrics.checkpoints_signed.get();
    assert!(signed <= 3, "{signed}");
    assert!(latest(&settings).size <= before.size + 3, "checkpoints of checkpoints alone are not signed");
}

#[test]
fn every_record_is_proven_to_a_verifier_of_its_own() {
    let directory = TempDir::new().unwrap();
    let (settings, key) = signed(directory.path());
    let mut ids = write_uses(&settings, 40);
    let first = latest(&settings);
    ids.extend(write_uses(&settings, 40));
    let last = latest(&settings);
    let journal = open_journal(&settings);
    wait_until_compressed(&settings);
    block_on(journal.close());
    let reader = open_reader(&settings);
    for (number, id) in ids.iter().enumerate() {
        for note in [&first.note, &last.note] {
            let Ok(proof) = reader.prove(*id, note) else {
                assert!(number >= 40 && *note == first.note, "record {number} is not covered");
                continue;
            };
            let texts: Vec<String> = proof.to_string().split("c2sp.org/tlog-proof@v1\n").map(str::to_owned).collect();
            assert_eq!((proof.lines.len(), texts.len()), (2, 3), "a use and its outcome");
            for text in &texts[1..] {
                let line = tree::verify_proof(text, &key.to_string()).expect("the proof is right");
                assert!(line.starts_with("u\t") || line.starts_with("o\t"), "{line}");
                let wrong = text.replacen("index 1", "index 2", 1).replacen("index 3", "index 4", 1);
                assert!(wrong == *text || tree::verify_proof(&wrong, &key.to_string()).is_none());
            }
        }
    }
    assert!(reader.prove(uuid::Uuid::now_v7(), &last.note).is_err());
}

#[test]
fn rest_of_a_journal_is_proven_after_retention() {
    let directory = TempDir::new().unwrap();
    let (settings, key) = signed(directory.path());
    keep_plain(&settings);
    let removed = write_covered(&settings, 60);
    let inside = latest(&settings);
    let ids = write_covered(&settings, 60);
    let after = latest(&settings);
    let journal = open_journal(&Settings { retention_size: Some(12_000), ..settings.clone() });
    eventually("old segments are removed", || segment_files(&settings).len() < 8);
    block_on(journal.close());
    assert_intact(&settings);
    let tree = assert_proven(&settings, &after.note, &key);
    assert!(tree.removed_lines > inside.size && tree.removed_segments > 2, "{tree:?}");
    let (_, unknown) = verify(&settings, &inside.note, &key);
    assert!(unknown.problems[0].what.contains("cannot be compared"), "{unknown:?}");
    let reader = open_reader(&settings);
    assert!(reader.prove(removed[0], &after.note).is_err());
    let proof = reader.prove(*ids.last().unwrap(), &after.note).unwrap();
    let text = proof.to_string();
    assert!(tree::verify_proof(text.split_once('\n').unwrap().1, &key.to_string()).is_some(), "{text}");
    assert_eq!(proof.lines.len() + proof.later_lines, 2);
    // Without the hashes of the removed segments, nothing can be proven.
    fs::remove_file(settings.path.join("merkle.tree")).unwrap();
    assert_ne!(verify(&settings, &after.note, &key).1.problems, []);
}

#[test]
fn journal_that_began_without_checkpoints_is_covered_as_a_whole() {
    let directory = TempDir::new().unwrap();
    let (signed, key) = signed(directory.path());
    write_uses(&Settings { checkpoints: None, ..signed.clone() }, 50);
    assert_eq!(LatestCheckpoint::read(&signed.path).unwrap(), None);
    assert!(!signed.path.join("merkle.tree").exists(), "nothing is hashed");
    write_covered(&signed, 1);
    let tree = assert_proven(&signed, &latest(&signed).note, &key);
    assert!(tree.covered > 100, "{tree:?}");
    // And goes on after a time without.
    write_uses(&Settings { checkpoints: None, ..signed.clone() }, 50);
    write_covered(&signed, 1);
    assert!(assert_proven(&signed, &latest(&signed).note, &key).covered > 200);
}

#[test]
fn other_past_gets_no_checkpoint() {
    let directory = TempDir::new().unwrap();
    let (settings, _) = signed(directory.path());
    let settings = Settings { segment_size: 1 << 20, ..settings };
    write_uses(&settings, 10);
    let before = latest(&settings);
    let path = segment_files(&settings).pop().unwrap();
    let changed: Vec<String> = fs::read_to_string(&path)
        .unwrap()
        .lines()
        .map(|line| tree::reframe(&line.replace("203.0.113.7", "203.0.113.8")))
        .collect();
    fs::write(&path, changed.join("\n") + "\n").unwrap();
    let metrics = Metrics::new().audit;
    let journal = Journal::open(settings.clone(), metrics.clone()).unwrap();
    block_on(async {
        journal.begin(&Caller::random().opening()).await.unwrap().close(END);
        journal.close().await;
    });
    assert_eq!((metrics.checkpoints_failed.get(), metrics.checkpoints_signed.get()), (1, 0));
    assert_eq!(latest(&settings), before);
    assert_eq!(all_records(&settings).len(), 11, "records are written as ever");
}

#[test]
fn hand_over_continues_the_tree() {
    let directory = TempDir::new().unwrap();
    let (settings, key) = signed(directory.path());
    write_uses(&settings, 20);
    let first = latest(&settings);
    block_on(async {
        let before = open_journal(&settings);
        let caller = Caller::random();
        let open = before.begin(&caller.opening()).await.unwrap();
        let lock = before.hand_over().unwrap();
        before.begin(&caller.opening()).await.unwrap().close(END);
        let after = Journal::open_with_lock(settings.clone(), Metrics::new().audit, lock).unwrap();
        before.leave();
        for _ in 0..20 {
            after.begin(&caller.opening()).await.unwrap().close(END);
        }
        open.close(END);
        before.close().await;
        after.close().await;
    });
    block_on(open_journal(&settings).close());
    assert_proven(&settings, &first.note, &key);
    assert_proven(&settings, &latest(&settings).note, &key);
    assert_eq!(all_records(&settings).len(), 42);
}

#[test]
fn key_that_is_none_or_of_another_name_keeps_the_journal_closed() {
    let directory = TempDir::new().unwrap();
    let (settings, _) = signed(directory.path());
    let open = |checkpoints: &Checkpoints| {
        Journal::open(Settings { checkpoints: Some(checkpoints.clone()), ..settings.clone() }, Metrics::new().audit)
    };
    let good = settings.checkpoints.clone().unwrap();
    let other = open(&Checkpoints { origin: Some("another".into()), ..good.clone() }).unwrap_err();
    assert!(other.to_string().contains("the key's name is `example.org/gw-1`"), "{other}");
    assert!(open(&Checkpoints { key_file: directory.path().join("none"), ..good.clone() }).is_err());
    let text = fs::read_to_string(&good.key_file).unwrap();
    fs::write(&good.key_file, text.replace("gw-1", "gw-2")).unwrap();
    let wrong = open(&good).unwrap_err();
    assert!(wrong.to_string().contains("audit key new") && !wrong.to_string().contains(text.trim()), "{wrong}");
}

#[test]
fn synced_journal_is_covered_too() {
    let directory = TempDir::new().unwrap();
    let (settings, key) = signed(directory.path());
    let settings = Settings { durability: journal::audit::Durability::Synced, ..settings };
    write_uses(&settings, 20);
    assert!(assert_proven(&settings, &latest(&settings).note, &key).covered >= 40);
}

/// Opens the journal with the key, records a use, and closes it: no checkpoint is signed, and the records
/// are written as ever.
fn assert_not_signed(settings: &Settings) {
    let metrics = Metrics::new().audit;
    let journal = Journal::open(settings.clone(), metrics.clone()).unwrap();
    block_on(async {
        journal.begin(&Caller::random().opening()).await.unwrap().close(END);
        journal.close().await;
    });
    assert_eq!((metrics.checkpoints_failed.get(), metrics.checkpoints_signed.get()), (1, 0));
}

#[test]
fn journal_that_has_lost_lines_of_its_last_checkpoint_gets_no_other_one() {
    let directory = TempDir::new().unwrap();
    let (settings, _) = signed(directory.path());
    let settings = Settings { segment_size: 1 << 20, ..settings };
    write_uses(&settings, 10);
    let before = latest(&settings);
    let path = segment_files(&settings).pop().unwrap();
    let text = fs::read_to_string(&path).unwrap();
    let kept: Vec<&str> = text.lines().take(9).collect();
    fs::write(&path, kept.join("\n") + "\n").unwrap();
    assert_not_signed(&settings);
    assert_eq!(latest(&settings), before);
}

#[test]
fn checkpoint_of_another_past_is_noticed_by_the_hashes_of_closed_segments() {
    let (directory, other) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let (settings, _) = signed(directory.path());
    write_uses(&settings, 60);
    // A journal of the same key, whose checkpoint ends within closed segments of this one.
    let theirs = Settings { path: other.path().join("audit"), ..settings.clone() };
    write_uses(&theirs, 10);
    fs::copy(theirs.path.join("checkpoint"), settings.path.join("checkpoint")).unwrap();
    assert_not_signed(&settings);
}

#[test]
fn journal_with_a_missing_segment_that_was_not_hashed_gets_no_checkpoint() {
    let directory = TempDir::new().unwrap();
    let (signed, _) = signed(directory.path());
    write_uses(&Settings { checkpoints: None, ..signed.clone() }, 60);
    let segments = segment_files(&signed);
    fs::remove_file(&segments[segments.len() / 2]).unwrap();
    assert_not_signed(&signed);
    assert_eq!(LatestCheckpoint::read(&signed.path).unwrap(), None);
}

/// Sizes of the checkpoints that are lines of a journal, whose segments are plain.
fn sizes(settings: &Settings) -> Vec<u64> {
    let seals = lines(settings).into_iter().filter(|line| line.starts_with(r#"{"e":"seal","segment":0,"#));
    seals.map(|line| serde_json::from_str::<serde_json::Value>(&line).unwrap()["lines"].as_u64().unwrap()).collect()
}

#[test]
fn checkpoint_comes_after_ten_thousand_lines_of_traffic_and_once_for_an_old_journal() {
    // All lines are hashed in one round: those of a segment that is written, and those of many old ones.
    for (segment_size, first_is_at_ten_thousand) in [(64 << 20, true), (100_000, false)] {
        let directory = TempDir::new().unwrap();
        let (signed, key) = signed(directory.path());
        let signed = Settings { segment_size, ..signed };
        keep_plain(&signed);
        write_uses(&Settings { checkpoints: None, ..signed.clone() }, 6_000);
        write_covered(&signed, 1);
        let sizes = sizes(&signed);
        assert_eq!(sizes[0] == 10_000, first_is_at_ten_thousand, "{sizes:?}");
        assert!(*sizes.last().unwrap() > 12_000, "{sizes:?}");
        assert_proven(&signed, &latest(&signed).note, &key);
    }
}
