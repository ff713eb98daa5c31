//! Segments without an index: lost, torn, or never made because the segment is damaged.

use std::fs;
use std::path::PathBuf;

use domain::clock;
use journal::audit::{LastUse, Outcome, Settings};
use tempfile::TempDir;

use super::support::{
    Caller, END, block_on, index_files, new_directory, open_journal, open_reader, remove_index, segment_files,
    settings, wait_until_compressed, wait_until_indexed, write_uses,
};
use crate::support::eventually;

/// A journal of some closed segments, all of them compressed and indexed.
fn indexed_journal(settings: &Settings) {
    write_uses(settings, 150);
    let journal = open_journal(settings);
    wait_until_compressed(settings);
    wait_until_indexed(settings);
    block_on(journal.close());
    assert!(segment_files(settings).len() > 5);
}

fn small_segments(directory: &TempDir) -> Settings {
    Settings { segment_size: 4_000, ..settings(directory.path()) }
}

/// Changes a byte of the first frame of a compressed segment, which its table does not show.
fn damage(path: &PathBuf) {
    let mut bytes = fs::read(path).unwrap();
    bytes[20] ^= 0x10;
    fs::write(path, bytes).unwrap();
}

#[test]
fn missing_index_is_made_by_the_next_start() {
    let directory = TempDir::new().unwrap();
    let settings = small_segments(&directory);
    indexed_journal(&settings);
    let files = index_files(&settings);
    remove_index(&settings);
    let journal = open_journal(&settings);
    eventually("each closed segment has an index again", || files[..files.len() - 1].iter().all(|path| path.exists()));
    block_on(journal.close());
}

#[test]
fn torn_or_damaged_index_is_made_again() {
    let directory = TempDir::new().unwrap();
    let settings = small_segments(&directory);
    indexed_journal(&settings);
    let path = index_files(&settings)[1].clone();
    let whole = fs::read(&path).unwrap();
    // A header is 80 bytes: the fourth of its numbers is the length of a part.
    let (torn, mut damaged) = (whole[..whole.len() - 1].to_vec(), whole.clone());
    damaged[24] ^= 1;
    for bytes in [torn, damaged] {
        fs::write(&path, bytes).unwrap();
        let journal = open_journal(&settings);
        let is_whole = |now: Vec<u8>| now.len() == whole.len() && now[..80] == whole[..80];
        eventually("it is made again", || fs::read(&path).is_ok_and(is_whole));
        block_on(journal.close());
    }
}

#[test]
fn segments_behind_a_damaged_one_are_indexed_and_removed() {
    let directory = TempDir::new().unwrap();
    let settings = small_segments(&directory);
    indexed_journal(&settings);
    let (segments, files) = (segment_files(&settings), index_files(&settings));
    remove_index(&settings);
    damage(&segments[1]);
    let journal = open_journal(&settings);
    let others = [&files[..1], &files[2..files.len() - 1]].concat();
    eventually("the others have an index again", || others.iter().all(|path| path.exists()));
    assert!(!files[1].exists());
    block_on(journal.close());
    // Retention does not stop at it, and records its removal as any other.
    let journal = open_journal(&Settings { retention_size: Some(1), ..settings.clone() });
    eventually("all closed segments are removed", || segment_files(&settings).len() <= 1);
    block_on(journal.close());
    assert_eq!(open_reader(&settings).verify().unwrap().problems, []);
}

#[test]
fn segment_with_a_damaged_table_is_removed() {
    let directory = TempDir::new().unwrap();
    let settings = small_segments(&directory);
    indexed_journal(&settings);
    let first = &segment_files(&settings)[0];
    let whole = fs::read(first).unwrap();
    fs::write(first, &whole[..whole.len() / 2]).unwrap();
    let journal = open_journal(&Settings { retention_size: Some(1), ..settings.clone() });
    eventually("all closed segments are removed", || segment_files(&settings).len() <= 1);
    block_on(journal.close());
    assert_eq!(open_reader(&settings).verify().unwrap().problems, []);
}

#[test]
fn use_that_a_start_closes_is_aborted_in_the_activity() {
    let (_directory, settings) = new_directory();
    let (journal, caller) = (open_journal(&settings), Caller::random());
    block_on(async { journal.begin(&caller.opening()).await.unwrap().close(END) });
    std::mem::forget(block_on(journal.begin(&caller.opening())).unwrap());
    // The index of the open segment is left to the next start, which closes the use.
    block_on(journal.close());
    let journal = open_journal(&settings);
    let last = || -> LastUse {
        let reader = journal.reader().unwrap();
        reader.activity(caller.org, &[caller.key], clock::now()).unwrap()[&caller.key].last.clone().unwrap()
    };
    assert_eq!(last().outcome, Outcome::Aborted);
    block_on(journal.close());
}
