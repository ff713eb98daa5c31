//! Space on the disk: that of all files of a journal, and of its segments and their indexes for each use.

use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use domain::identity::OrgId;
use journal::audit::Settings;
use tempfile::TempDir;

use super::support::{
    Caller, END, all_files, assert_intact, block_on, index_file, new_directory, open_index, open_journal, remove_index,
    segment_files, segment_number, settings, wait_until_compressed, wait_until_indexed,
};
use crate::support::eventually;

/// Bytes of index that a use may take.
const MAX_INDEX: f64 = 8.0;

fn size(files: &[PathBuf]) -> u64 {
    // One that is removed meanwhile has no size.
    files.iter().map(|path| fs::metadata(path).map_or(0, |file| file.len())).sum()
}

/// Callers of a hundred keys in each organization, each with a user of its own.
fn callers(count: usize) -> Vec<Caller> {
    let orgs: Vec<OrgId> = (0..=count / 100).map(|_| OrgId::generate()).collect();
    (0..count).map(|n| Caller { org: orgs[n / 100], ..Caller::random() }).collect()
}

#[test]
fn directory_stays_within_the_size_of_retention() {
    const LIMIT: u64 = 1_000_000;
    let directory = TempDir::new().unwrap();
    let settings = Settings { segment_size: 150_000, retention_size: Some(LIMIT), ..settings(directory.path()) };
    let journal = open_journal(&settings);
    let callers = callers(300);
    for round in 0..40_u64 {
        block_on(async {
            for n in 0..3_000 {
                let caller = callers[(n * 7 + round * 11) as usize % callers.len()];
                journal.begin(&caller.opening()).await.unwrap().close(END);
            }
        });
        eventually("the directory has the size of retention", || size(&all_files(&settings.path)) < LIMIT / 10 * 11);
    }
    let segments = segment_files(&settings);
    assert!(segment_number(&segments[0]) > 50, "many are removed");
    // Those that are compressed meanwhile have another name.
    eventually("records have their part", || size(&segment_files(&settings)) > LIMIT / 4);
    block_on(journal.close());
    assert!(size(&all_files(&settings.path)) < LIMIT / 10 * 11, "also when it is closed");
    assert_intact(&settings);
}

/// Bytes of closed segments and of their indexes for each use, by this many keys at random; bytes of counts for each
/// key; and the time in which a segment is indexed anew.
#[allow(clippy::cast_precision_loss, reason = "counts below 2^52")]
fn measure(keys: usize) -> (f64, f64, f64, Duration) {
    const USES: usize = 350_000;
    let (_directory, settings) = new_directory();
    let journal = open_journal(&settings);
    let callers = callers(keys);
    let mut random = crate::support::random::Random::new(7);
    block_on(async {
        for _ in 0..USES {
            let caller = callers[random.index(keys)];
            journal.begin(&caller.opening()).await.unwrap().close(END);
        }
    });
    wait_until_compressed(&settings);
    wait_until_indexed(&settings);
    let segments = segment_files(&settings);
    // Rows of parts, whose keys take up to ten bytes each.
    let query = "SELECT sum(length(sets) + 20) FROM part";
    let indexes = open_index(&settings).unwrap().query_row(query, [], |row| row.get::<_, i64>(0)).unwrap();
    let (last, closed) = segments.split_last().unwrap();
    assert!(!closed.is_empty());
    let open = fs::read_to_string(last).unwrap().lines().filter(|line| line.contains("\tcompleted\t")).count();
    let uses = (USES - open) as f64;
    block_on(journal.close());
    let counts = size(&[index_file(&settings)]) as i64 - indexes;
    remove_index(&settings);
    let started = Instant::now();
    let journal = open_journal(&settings);
    wait_until_indexed(&settings);
    let time = started.elapsed() / u32::try_from(segments.len()).unwrap();
    block_on(journal.close());
    (size(closed) as f64 / uses, indexes as f64 / uses, counts as f64 / keys as f64, time)
}

#[test]
fn index_is_smaller_than_the_segments() {
    for keys in [10, 100_000] {
        let (segment, index, counts, time) = measure(keys);
        println!(
            "{keys} keys: {segment:.1} bytes of closed segments for each use, {index:.2} of index; index.db: \
             {counts:.0} bytes a key; indexed anew in {time:?} a segment"
        );
        assert!(index < segment && index < MAX_INDEX, "{keys}: {index} beside {segment}");
    }
}
