//! Figures of shipping to PostgreSQL: records per second of a catch-up, and the processor time of the
//! gateway for each record.
//!
//! `KEYGATE_SHIP_RECORDS=1000000 cargo test --release --test integration -- shipping::throughput --nocapture`: alone,
//! as the threads of other tests have the same name.

use std::fs;
use std::time::{Duration, Instant};

use journal::audit::{Settings, Use};

use super::postgresql::{sink, start};
use crate::journal::support::{Caller, END, block_on, keep_plain, open_journal, settings};
use crate::support::{Postgresql, until};

/// Name of the threads of shippers.
const THREAD: &str = "audit-ship";

/// Processor time so far of the shippers' threads of this process, in nanoseconds, with that in the kernel.
fn processor_time() -> u64 {
    let threads = fs::read_dir("/proc/self/task").unwrap().map(|entry| entry.unwrap().path());
    // A thread may end meanwhile.
    let ours = threads.filter(|path| fs::read_to_string(path.join("comm")).is_ok_and(|name| name.trim() == THREAD));
    let times = ours.filter_map(|path| fs::read_to_string(path.join("schedstat")).ok());
    times.map(|times| times.split(' ').next().unwrap().parse::<u64>().unwrap()).sum()
}

#[test]
fn catch_up_is_complete_and_its_rate_is_printed() {
    let records: usize = std::env::var("KEYGATE_SHIP_RECORDS").map_or(20_000, |text| text.parse().expect("a number"));
    let (dir, server) = (tempfile::tempdir().unwrap(), Postgresql::start_on_disk());
    // As at the end of a journal, where records are read before their segment is compressed.
    let settings = Settings { segment_size: 64 << 20, ..settings(dir.path()) };
    keep_plain(&settings);
    let journal = open_journal(&settings);
    // A thousand keys, and uses that overlap.
    let callers: Vec<Caller> = (0..1000).map(|_| Caller::random()).collect();
    block_on(async {
        for begins in (0..records).collect::<Vec<_>>().chunks(64) {
            let openings: Vec<Use<'_>> = begins.iter().map(|number| callers[number % 1000].opening()).collect();
            let begun = futures_util::future::join_all(openings.iter().map(|opening| journal.begin(opening))).await;
            begun.into_iter().for_each(|entry| entry.unwrap().close(END));
        }
    });
    let began = Instant::now();
    let shippers = start(&journal, &sink(&server));
    let mut delivered = 0;
    while delivered < records as u64 {
        // However many there are: it is to go on.
        delivered = until("more records are delivered", || {
            let report = shippers.reports().remove(0);
            assert!(report.error.is_none(), "{report:?}");
            Some(report.delivered).filter(|now| *now > delivered)
        });
    }
    // Before the thread ends, which takes its time with it.
    let (time, used) = (began.elapsed(), Duration::from_nanos(processor_time()));
    block_on(journal.close());
    shippers.finish(Duration::from_secs(60));
    let count = u32::try_from(records).expect("some millions");
    let each = used.as_secs_f64() * 1e6 / f64::from(count);
    println!(
        "{records} records in {:.2} s: {:.0}/s; {each:.2} us of a processor each in the shipper's thread: {:.1} % of a \
         core at 10,000/s",
        time.as_secs_f64(),
        f64::from(count) / time.as_secs_f64(),
        each
    );
    let size = "SELECT sum(pg_table_size(inhrelid)), sum(pg_indexes_size(inhrelid)) FROM pg_inherits \
                WHERE inhparent = 'keygate.records'::regclass";
    println!("bytes of all records in PostgreSQL, and of their indexes: {:?}", server.sql(size));
    assert_eq!(server.sql("SELECT count(*) FROM keygate.records"), [records.to_string()]);
}
