//! A journal whose last segment was damaged by a crash, a disk or an editor.

use std::io::Write as _;
use std::path::Path;
use std::time::Duration;

use domain::clock::Micros;
use journal::audit::{Durability, Filter, Journal, LowWater, OnUnavailable, Reader, Settings};
use platform::metrics::Metrics;

/// Whatever a segment holds, the journal opens and goes on, or says why not; and it can be read and verified.
///
/// Lines that begin with `{`, or with a letter and a tab, get the frame that every line has, so that what is
/// within it is tried, too.
pub fn journal(bytes: &[u8]) {
    let directory = tempfile::tempdir_in("/dev/shm").expect("a directory in memory");
    let path = directory.path().join("audit");
    std::fs::create_dir(&path).expect("a new directory");
    std::fs::write(path.join("0000000001.jsonl"), framed(bytes)).expect("a new file");
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    for _ in 0..2 {
        // The second time, it finds what the first one made of it.
        if let Ok(journal) = Journal::open(settings(&path), Metrics::new().audit) {
            journal.uses_since(Micros(0)).ok();
            runtime.block_on(journal.close());
        }
        let reader = Reader::open(&path).expect("the directory is there");
        reader.list(&Filter::default(), 100, None).ok();
        reader.verify().ok();
    }
}

fn framed(bytes: &[u8]) -> Vec<u8> {
    let mut segment = Vec::new();
    for (index, line) in bytes.split_inclusive(|byte| *byte == b'\n').enumerate() {
        let body = line.strip_suffix(b"}\n").or_else(|| line.strip_suffix(b"\n")).unwrap_or(line);
        let start = segment.len();
        if body.get(1) == Some(&b'\t') {
            let body = line.strip_suffix(b"\n").unwrap_or(line);
            segment.extend_from_slice(body);
            write!(segment, "\t{}", index + 1).expect("a Vec takes every write");
            let crc = crc32fast::hash(&segment[start..]);
            writeln!(segment, "\t{crc:08x}").expect("a Vec takes every write");
            continue;
        }
        if !body.starts_with(b"{") {
            segment.extend_from_slice(line);
            continue;
        }
        segment.extend_from_slice(body);
        write!(segment, ",\"n\":{}", index + 1).expect("a Vec takes every write");
        let crc = crc32fast::hash(&segment[start..]);
        writeln!(segment, ",\"crc\":\"{crc:08x}\"}}").expect("a Vec takes every write");
    }
    segment
}

fn settings(path: &Path) -> Settings {
    Settings {
        path: path.to_owned(),
        durability: Durability::Written,
        on_unavailable: OnUnavailable::Refuse,
        segment_size: 1 << 20,
        segment_age: Duration::from_secs(3600),
        retention_age: None,
        retention_size: None,
        retention_by_volume: false,
        retention_unshipped: 0,
        low_water: LowWater::Percent(10),
        unknown_per_second: 1,
        refusals: journal::audit::RefusalRecords::Coalesced,
        addresses: journal::audit::Addresses::Full,
        checkpoints: None,
        gateway: "fuzz".into(),
    }
}
