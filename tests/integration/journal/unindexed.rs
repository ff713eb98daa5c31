//! Segments without an index: lost, torn, or never made because the segment is damaged.

use std::fs;
use std::path::PathBuf;

use domain::clock;
use journal::audit::{LastUse, Outcome, Settings};
use tempfile::TempDir;

use super::support::{
    Caller, END, block_on, change_index, index_file, indexed_segments, new_directory, open_journal, open_reader,
    remove_index, segment_files, segment_number, segment_numbers, settings, wait_until_compressed, wait_until_indexed,
    write_uses,
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
    assert_eq!(indexed_segments(&settings), segment_numbers(&settings));
    remove_index(&settings);
    let journal = open_journal(&settings);
    wait_until_indexed(&settings);
    block_on(journal.close());
    assert_eq!(indexed_segments(&settings), segment_numbers(&settings));
}

#[test]
fn torn_or_damaged_index_is_made_again() {
    let directory = TempDir::new().unwrap();
    let settings = small_segments(&directory);
    indexed_journal(&settings);
    let path = index_file(&settings);
    let whole = fs::read(&path).unwrap();
    let problems = || open_reader(&settings).verify().unwrap().problems;
    for is_torn in [true, false] {
        if is_torn {
            fs::write(&path, &whole[..whole.len() - 5000]).unwrap();
        } else {
            assert_eq!(change_index(&settings, "UPDATE part SET sets = x'00' WHERE place = 2 << 32"), 1);
        }
        assert_ne!(problems(), [], "it is found");
        let journal = open_journal(&settings);
        wait_until_indexed(&settings);
        eventually("it is made again", || problems().is_empty());
        block_on(journal.close());
        assert_eq!((indexed_segments(&settings), problems()), (segment_numbers(&settings), vec![]));
    }
}

/// Versions before had one file for each segment.
#[test]
fn index_of_a_version_before_is_replaced() {
    let directory = TempDir::new().unwrap();
    let settings = small_segments(&directory);
    indexed_journal(&settings);
    remove_index(&settings);
    let before = rusqlite::Connection::open(index_file(&settings)).unwrap();
    before.execute_batch("CREATE TABLE covered (segment INTEGER, end INTEGER); PRAGMA user_version = 3;").unwrap();
    drop(before);
    let file = settings.path.join("0000000002.index");
    fs::write(&file, "kgindex3").unwrap();
    let journal = open_journal(&settings);
    wait_until_indexed(&settings);
    block_on(journal.close());
    assert!(indexed_segments(&settings) == segment_numbers(&settings) && !file.exists());
}

#[test]
fn segments_behind_a_damaged_one_are_indexed_and_removed() {
    let directory = TempDir::new().unwrap();
    let settings = small_segments(&directory);
    indexed_journal(&settings);
    let damaged = &segment_files(&settings)[1];
    remove_index(&settings);
    damage(damaged);
    let journal = open_journal(&settings);
    let others = || {
        let mut others = segment_numbers(&settings);
        others.retain(|number| *number != segment_number(damaged));
        others
    };
    eventually("the others have an index again", || {
        // That of the open segment is left when the journal is closed.
        let others = others();
        indexed_segments(&settings) == others[..others.len() - 1]
    });
    block_on(journal.close());
    assert_eq!(indexed_segments(&settings), others());
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
