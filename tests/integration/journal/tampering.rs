//! Edits of a journal by someone who can write every file: each is found with nothing but an old
//! checkpoint and the public key.
//!
//! The suite makes 150 random edits; `KEYGATE_TAMPERINGS=1000` makes as many as that.

use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};

use journal::audit::{CheckpointCopies, PublicKey, Settings};
use sha2::{Digest as _, Sha256};
use tempfile::TempDir;

use super::checkpoints::{assert_proven, latest, lines, signed};
use super::support::{
    block_on, change_index, index_file, keep_plain, open_journal, open_reader, remove_index, segment_files,
    segment_number, wait_until_compressed, wait_until_indexed, write_uses,
};
use super::tree;
use crate::support::random::Random;

/// Edits that the suite makes.
const EDITS: u64 = 150;

/// A journal with a checkpoint in its middle.
struct Journal {
    _directory: TempDir,
    settings: Settings,
    key: PublicKey,
    /// The old checkpoint.
    note: String,
    /// Segments of which the checkpoint covers every line.
    covered: usize,
}

impl Journal {
    fn new(is_plain: bool) -> Self {
        let directory = TempDir::new().unwrap();
        let (settings, key) = signed(directory.path());
        if is_plain {
            keep_plain(&settings);
        }
        write_uses(&settings, 80);
        let note = latest(&settings).note;
        let covered = segment_files(&settings).len() - 1;
        write_uses(&settings, 30);
        let journal = open_journal(&settings);
        wait_until_indexed(&settings);
        if !is_plain {
            wait_until_compressed(&settings);
        }
        block_on(journal.close());
        assert!(covered > 4, "{covered}");
        assert_proven(&settings, &note, &key);
        Self { _directory: directory, settings, key, note, covered }
    }

    fn is_edit_found(&self, copy: &Settings) -> bool {
        let mut copies = CheckpointCopies::default();
        copies.add(&self.note, &self.key).unwrap();
        open_reader(copy)
            .verify_copies(&copies, &self.key)
            .map_or(true, |(report, tree)| !(report.problems.is_empty() && tree.problems.is_empty()))
    }
}

type Edit = fn(&mut Random, &Settings, usize) -> &'static str;

const OF_ANY: [Edit; 6] = [flip_bit, remove_segment, swap_segments, truncate_segment, truncate_journal, replace_index];
const OF_PLAIN: [Edit; 7] =
    [remove_line, swap_lines, insert_line, change_line, rewrite_journal, replace_hashes, flip_bit_of_hashes];

fn covered_file(random: &mut Random, settings: &Settings, covered: usize) -> PathBuf {
    segment_files(settings).swap_remove(random.index(covered))
}

fn flip_bit(random: &mut Random, settings: &Settings, covered: usize) -> &'static str {
    let path = covered_file(random, settings, covered);
    flip_bit_of(random, &path);
    "a bit"
}

fn flip_bit_of(random: &mut Random, path: &Path) {
    let mut bytes = fs::read(path).unwrap();
    let at = random.index(bytes.len());
    bytes[at] ^= 1 << random.below(8);
    fs::write(path, bytes).unwrap();
}

fn remove_segment(random: &mut Random, settings: &Settings, covered: usize) -> &'static str {
    fs::remove_file(covered_file(random, settings, covered)).unwrap();
    "a segment removed"
}

fn swap_segments(random: &mut Random, settings: &Settings, covered: usize) -> &'static str {
    let files = segment_files(settings);
    let first = random.index(covered);
    let second = (first + 1 + random.index(covered - 1)) % covered;
    let contents = [first, second].map(|at| fs::read(&files[at]).unwrap());
    fs::write(&files[first], &contents[1]).unwrap();
    fs::write(&files[second], &contents[0]).unwrap();
    "segments swapped"
}

fn truncate_segment(random: &mut Random, settings: &Settings, covered: usize) -> &'static str {
    let path = covered_file(random, settings, covered);
    let bytes = fs::read(&path).unwrap();
    fs::write(&path, &bytes[..random.index(bytes.len())]).unwrap();
    "a segment cut"
}

/// Removes everything from a line on, with nothing left of what came after.
fn truncate_journal(random: &mut Random, settings: &Settings, covered: usize) -> &'static str {
    let files = segment_files(settings);
    let keep = 1 + random.index(covered - 1);
    files[keep..].iter().for_each(|path| fs::remove_file(path).unwrap());
    let last = &files[keep - 1];
    if last.extension().is_some_and(|extension| extension == "jsonl") {
        let text = fs::read_to_string(last).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        write_lines(last, &lines[..1 + random.index(lines.len() - 1)]);
    }
    forget_hashes(settings);
    "the end cut off"
}

fn replace_index(random: &mut Random, settings: &Settings, covered: usize) -> &'static str {
    let numbers: Vec<u64> = segment_files(settings)[..covered].iter().map(|path| segment_number(path)).collect();
    let at = random.index(covered);
    let (number, other) = (numbers[at], numbers[(at + 1) % covered]);
    let change = match random.below(3) {
        0 => format!("UPDATE part SET sets = (SELECT sets FROM part WHERE place = {other} << 32)"),
        1 => format!("UPDATE part SET sets = x'{:02x}'", random.below(256)),
        _ => "DELETE FROM part".to_owned(),
    };
    assert_eq!(change_index(settings, &format!("{change} WHERE place = {number} << 32")), 1);
    "an index"
}

fn read_lines(path: &Path) -> Vec<String> {
    fs::read_to_string(path).unwrap().lines().map(str::to_owned).collect()
}

fn write_lines(path: &Path, lines: &[impl AsRef<str>]) {
    let text: String = lines.iter().map(|line| format!("{}\n", line.as_ref())).collect();
    fs::write(path, text).unwrap();
}

fn remove_line(random: &mut Random, settings: &Settings, covered: usize) -> &'static str {
    let path = covered_file(random, settings, covered);
    let mut lines = read_lines(&path);
    lines.remove(random.index(lines.len()));
    write_lines(&path, &lines);
    "a line removed"
}

fn swap_lines(random: &mut Random, settings: &Settings, covered: usize) -> &'static str {
    let path = covered_file(random, settings, covered);
    let mut lines = read_lines(&path);
    let first = random.index(lines.len());
    let second = (first + 1 + random.index(lines.len() - 1)) % lines.len();
    lines.swap(first, second);
    write_lines(&path, &lines);
    "lines swapped"
}

fn insert_line(random: &mut Random, settings: &Settings, covered: usize) -> &'static str {
    let path = covered_file(random, settings, covered);
    let mut lines = read_lines(&path);
    let line = lines[random.index(lines.len())].clone();
    lines.insert(random.index(lines.len()), line);
    write_lines(&path, &lines);
    "a line inserted"
}

/// Changes the address in a use, with its checksum, and the seals that follow from it.
fn change_line(random: &mut Random, settings: &Settings, covered: usize) -> &'static str {
    let path = covered_file(random, settings, covered);
    let mut lines = read_lines(&path);
    let uses: Vec<usize> = (0..lines.len()).filter(|at| lines[*at].contains("203.0.113.7")).collect();
    let at = uses[random.index(uses.len())];
    lines[at] = tree::reframe(&lines[at].replace("203.0.113.7", "203.0.113.8"));
    write_lines(&path, &lines);
    seal_again(settings);
    "a use changed and sealed again"
}

/// Removes a use with its outcome, and makes all numbers, checksums and seals right again, as the
/// owner of the machine can.
fn rewrite_journal(random: &mut Random, settings: &Settings, covered: usize) -> &'static str {
    let path = covered_file(random, settings, covered);
    remove_use_of(random, settings, &path);
    "a use removed, and everything written again"
}

fn remove_use_of(random: &mut Random, settings: &Settings, path: &Path) {
    let lines = read_lines(path);
    // One that no header lists: it has ended in the segment in which it began.
    let has_ended =
        |id: &&str| lines.iter().any(|line| line.strip_prefix("o\t").is_some_and(|line| line.starts_with(id)));
    let ids: Vec<&str> =
        lines.iter().filter_map(|line| Some(&line.strip_prefix("u\t")?[..22])).filter(has_ended).collect();
    let id = ids[random.index(ids.len())];
    write_again(settings, |line| !line[2..].starts_with(id));
    remove_index(settings);
    forget_hashes(settings);
}

/// Writes the lines that are kept again, with right numbers, checksums and seals.
fn write_again(settings: &Settings, keeps: impl Fn(&str) -> bool) {
    let mut next = 1;
    for path in segment_files(settings) {
        let kept = read_lines(&path).into_iter().filter(|line| keeps(line));
        let numbered: Vec<String> = kept
            .map(|line| {
                next += 1;
                tree::renumber(&line, next - 1)
            })
            .collect();
        write_lines(&path, &numbered);
    }
    seal_again(settings);
}

fn replace_hashes(random: &mut Random, settings: &Settings, covered: usize) -> &'static str {
    let path = settings.path.join("merkle.tree");
    let mut lines = read_lines(&path);
    lines.remove(1 + random.index(covered));
    write_lines(&path, &lines);
    "kept hashes removed"
}

fn flip_bit_of_hashes(random: &mut Random, settings: &Settings, _: usize) -> &'static str {
    flip_bit_of(random, &settings.path.join("merkle.tree"));
    "a bit of kept hashes"
}

fn forget_hashes(settings: &Settings) {
    fs::remove_file(settings.path.join("merkle.tree")).unwrap();
}

/// Computes the seals of all segments again: one changes the segment that it is in, whose seal is later.
fn seal_again(settings: &Settings) {
    let files = segment_files(settings);
    for path in &files {
        let lines = read_lines(path).into_iter().map(|line| {
            let Ok(mut seal) = serde_json::from_str::<serde_json::Value>(&line) else { return line };
            let sealed = seal["segment"].as_u64().filter(|number| seal["e"] == "seal" && *number > 0);
            let Some(sealed) = sealed.and_then(|number| files.iter().find(|path| segment_number(path) == number))
            else {
                return line;
            };
            let content = fs::read(sealed).unwrap();
            let digest: String = Sha256::digest(&content).iter().map(|byte| format!("{byte:02x}")).collect();
            let before = seal["sha256"].as_str().unwrap().to_owned();
            let (count, lines) = (content.iter().filter(|byte| **byte == b'\n').count(), seal["lines"].take());
            let line =
                line.replace(&before, &digest).replace(&format!("\"lines\":{lines}"), &format!("\"lines\":{count}"));
            tree::reframe(&line)
        });
        let lines: Vec<String> = lines.collect();
        write_lines(path, &lines);
    }
}

#[test]
fn every_edit_before_an_old_checkpoint_is_found() {
    let edits = std::env::var("KEYGATE_TAMPERINGS").map_or(EDITS, |count| count.parse().unwrap());
    let (plain, compressed) = (Journal::new(true), Journal::new(false));
    let (mut made, mut skipped) = (HashSet::new(), 0);
    for edit in 0..edits {
        let mut random = Random::new(edit);
        let is_plain = edit % 3 != 0;
        let of_plain = &[&OF_ANY[..], &OF_PLAIN[..]].concat();
        let (journal, kinds) = if is_plain { (&plain, &of_plain[..]) } else { (&compressed, &OF_ANY[..]) };
        let directory = TempDir::new().unwrap();
        let copy = Settings { path: directory.path().join("audit"), ..journal.settings.clone() };
        tree::copy(&journal.settings.path, &copy.path);
        let kind = kinds[random.index(kinds.len())];
        let what = kind(&mut random, &copy, journal.covered);
        // Equal lines, as two outcomes of one form, cannot be told apart by anything.
        if is_same(&journal.settings, &copy) {
            skipped += 1;
            continue;
        }
        assert!(journal.is_edit_found(&copy), "edit {edit} is not found: {what}, plain {is_plain}");
        made.insert(what);
    }
    assert!(made.len() == OF_ANY.len() + OF_PLAIN.len() && skipped < edits / 20, "{made:?}, {skipped} without effect");
}

fn is_same(original: &Settings, copy: &Settings) -> bool {
    let files = |settings: &Settings| {
        let files = [segment_files(settings), vec![index_file(settings), settings.path.join("merkle.tree")]].concat();
        files.iter().map(|path| fs::read(path).ok()).collect::<Vec<_>>()
    };
    files(original) == files(copy)
}

/// Changes that the check without a checkpoint cannot find: the reason for checkpoints.
#[test]
fn rewritten_journal_is_right_but_for_its_checkpoints() {
    let journal = Journal::new(true);
    let mut random = Random::new(7);
    rewrite_journal(&mut random, &journal.settings, journal.covered);
    let problems = open_reader(&journal.settings).verify().unwrap().problems;
    assert!(problems.iter().any(|problem| problem.what.contains("this checkpoint of the journal")), "{problems:?}");
    write_again(&journal.settings, |line| !line.starts_with(r#"{"e":"seal","segment":0,"#));
    fs::remove_file(journal.settings.path.join("checkpoint")).unwrap();
    let report = open_reader(&journal.settings).verify().unwrap();
    assert_eq!(report.problems, [], "everything else was made right");
    assert!(journal.is_edit_found(&journal.settings), "but for the copy");
}

/// The open segment has no seal.
#[test]
fn record_that_is_removed_from_the_open_segment_is_missed_by_the_checkpoints_of_the_journal() {
    let directory = TempDir::new().unwrap();
    let (settings, _) = signed(directory.path());
    let settings = Settings { segment_size: 1 << 20, ..settings };
    write_uses(&settings, 20);
    assert_eq!(open_reader(&settings).verify().unwrap().problems, []);
    remove_use_of(&mut Random::new(3), &settings, &segment_files(&settings)[0]);
    let problems = open_reader(&settings).verify().unwrap().problems;
    assert!(problems.iter().any(|problem| problem.what.contains("this checkpoint of it covers")), "{problems:?}");
    // With its lines, too; the file of the last one covers more than there is.
    write_again(&settings, |line| !line.starts_with(r#"{"e":"seal","segment":0,"#));
    let problems = open_reader(&settings).verify().unwrap().problems;
    assert!(problems.iter().any(|problem| problem.what.contains("the checkpoint covers")), "{problems:?}");
}

/// All notes of the checkpoints in a journal, whose segments are plain.
fn notes(settings: &Settings) -> Vec<String> {
    let seals = lines(settings).into_iter().filter(|line| line.starts_with(r#"{"e":"seal","segment":0,"#));
    let note = |line: String| {
        serde_json::from_str::<serde_json::Value>(&line).unwrap()["checkpoint"].as_str().map(str::to_owned)
    };
    seals.filter_map(note).collect()
}

#[test]
fn journal_that_was_put_back_and_has_grown_again_lacks_checkpoints_of_before() {
    let directory = TempDir::new().unwrap();
    let (settings, key) = signed(directory.path());
    keep_plain(&settings);
    let backup = directory.path().join("backup");
    write_uses(&settings, 20);
    tree::copy(&settings.path, &backup);
    write_uses(&settings, 20);
    let shipped = notes(&settings);
    tree::copy(&backup, &settings.path);
    keep_plain(&settings);
    write_uses(&settings, 60);
    let all = [shipped.clone(), notes(&settings)].concat();
    let check = |notes: &[String]| {
        let mut copies = CheckpointCopies::default();
        notes.iter().for_each(|note| copies.add(note, &key).unwrap());
        open_reader(&settings).verify_copies(&copies, &key).unwrap()
    };
    let (report, tree) = check(&all[all.len() - 1..]);
    assert_eq!((report.problems.len(), tree.problems.len()), (0, 0), "the newest one is that of the journal as it is");
    let (_, tree) = check(&all);
    let what: Vec<&str> = tree.problems.iter().map(|problem| problem.what.as_str()).collect();
    assert!(what.iter().any(|what| what.contains("are not those of the checkpoint")), "{what:?}");
    assert!(tree.checkpoints == all.len() as u64 && tree.proven < tree.covered, "{tree:?}");
    // The copies alone tell it, too, where both pasts had checkpoints of one size.
    let other = check(&shipped).1.problems;
    assert!(!other.is_empty());
}
