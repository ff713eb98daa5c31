//! Integrity: recovery of torn files, and detection of changed ones.

use std::fs;

use journal::audit::{Outcome, Settings};
use tempfile::TempDir;

use super::support::{
    all_records, assert_intact, block_on, keep_plain, new_directory, open_journal, open_reader, segment_files,
    settings, write_uses,
};
use crate::support::eventually;

#[test]
fn torn_tail_is_cut_off_wherever_it_is_torn() {
    let directory = TempDir::new().unwrap();
    let original = settings(directory.path());
    let ids = write_uses(&original, 3);
    let whole = fs::read(&segment_files(&original)[0]).unwrap();
    let last = whole[..whole.len() - 1].iter().rposition(|byte| *byte == b'\n').unwrap() + 1;
    for length in last..whole.len() {
        let copy = TempDir::new().unwrap();
        let settings = settings(copy.path());
        fs::create_dir(&settings.path).unwrap();
        fs::write(settings.path.join("0000000001.jsonl"), &whole[..length]).unwrap();
        if length > last {
            assert_ne!(open_reader(&settings).verify().unwrap().problems, [], "torn at {length}");
        }
        block_on(open_journal(&settings).close());
        assert_intact(&settings);
        let records = all_records(&settings);
        assert_eq!(records.iter().map(|record| record.id).collect::<Vec<_>>(), ids);
        assert_eq!(records[2].outcome, Outcome::Aborted, "its outcome was torn off");
        assert_eq!(records[1].outcome, Outcome::Completed);
    }
}

#[test]
fn torn_header_is_removed() {
    let (_directory, settings) = new_directory();
    write_uses(&settings, 2);
    for torn in ["", "{\"e\":\"head"] {
        fs::write(settings.path.join("0000000002.jsonl"), torn).unwrap();
        block_on(open_journal(&settings).close());
        assert_eq!(assert_intact(&settings).records, 2);
        assert_eq!(segment_files(&settings).len(), 1);
    }
}

#[test]
fn changed_byte_is_detected_wherever_it_is() {
    let (_directory, settings) = new_directory();
    write_uses(&settings, 20);
    let path = &segment_files(&settings)[0];
    let whole = fs::read(path).unwrap();
    for at in (0..whole.len()).filter(|at| at % 11 == 0 || whole[*at] == b'\n') {
        for flip in [0x01, 0x20, 0x80] {
            let mut changed = whole.clone();
            changed[at] ^= flip;
            fs::write(path, changed).unwrap();
            assert_ne!(open_reader(&settings).verify().unwrap().problems, [], "byte {at} ^ {flip:#x}");
        }
    }
    fs::write(path, whole).unwrap();
    assert_intact(&settings);
}

#[test]
fn deleted_swapped_and_duplicated_lines_are_detected() {
    let (_directory, settings) = new_directory();
    write_uses(&settings, 5);
    let path = &segment_files(&settings)[0];
    let whole = fs::read_to_string(path).unwrap();
    let lines: Vec<&str> = whole.split_inclusive('\n').collect();
    for i in 0..lines.len() - 1 {
        let mut variants = vec![lines.clone(); 3];
        variants[0].remove(i);
        variants[1].swap(i, i + 1);
        variants[2].insert(i, lines[i]);
        for variant in variants {
            fs::write(path, variant.concat()).unwrap();
            assert_ne!(open_reader(&settings).verify().unwrap().problems, [], "line {i}");
        }
    }
}

#[test]
fn changed_or_missing_sealed_segment_is_detected() {
    let directory = TempDir::new().unwrap();
    let settings = Settings { segment_size: 2_000, ..settings(directory.path()) };
    keep_plain(&settings);
    write_uses(&settings, 100);
    // Seals that this gateway did not write are written by the next one.
    let journal = open_journal(&settings);
    let sealed = || fs::read_to_string(segment_files(&settings).pop().unwrap()).unwrap().contains("\"e\":\"seal\"");
    eventually("the seals are written", sealed);
    block_on(journal.close());
    assert_intact(&settings);
    let second = &segment_files(&settings)[1];
    let whole = fs::read_to_string(second).unwrap();
    // A forged line with a matching checksum is detected by the seal.
    let mut lines: Vec<String> = whole.lines().map(str::to_owned).collect();
    let forged = lines.iter().position(|line| line.contains("203.0.113.7")).unwrap();
    let covered = lines[forged].rsplit_once('\t').unwrap().0.replace("203.0.113.7", "203.0.113.8");
    lines[forged] = format!("{covered}\t{:08x}", crc32fast::hash(covered.as_bytes()));
    fs::write(second, lines.join("\n") + "\n").unwrap();
    let problems = open_reader(&settings).verify().unwrap().problems;
    assert_eq!(problems.len(), 1);
    assert!(problems[0].what.contains("sealed"), "{problems:?}");
    fs::remove_file(second).unwrap();
    assert_ne!(open_reader(&settings).verify().unwrap().problems, []);
}
