//! Time of the usage of a range: of an organization with many keys, and of one of them, by the index of the journal.
//!
//! `cargo bench --bench overview -- [--keys 100000] [--requests 10000000]`
#![allow(clippy::unwrap_used, missing_docs, reason = "a benchmark")]
#![allow(clippy::print_stdout, reason = "a benchmark prints its figures")]

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use domain::budget::Cost;
use domain::clock::{self, Micros};
use domain::identity::{AuthMethod, OrgId, UserId};
use domain::key::{KeyId, OrgTag};
use domain::refusal::Refusal;
use futures_util::future::join_all;
use journal::audit::{
    Addresses, Durability, Journal, LowWater, OnUnavailable, Outcome, RefusalRecords, Settings, UsageRange, Use, UseEnd,
};
use platform::metrics::Metrics;
use uuid::Uuid;

const END: UseEnd = UseEnd {
    outcome: Outcome::Completed,
    status: Some(200),
    duration_us: 1500,
    request_bytes: 120,
    response_bytes: 4096,
};
/// Days over which the requests are spread.
const DAYS: u64 = 30;
/// Requests that are written together.
const BATCH: u64 = 500;
const ROUTES: [&str; 8] = [
    "queries.list",
    "queries.create",
    "queries.get",
    "queries.delete",
    "items.list",
    "items.get",
    "reports.list",
    "reports.get",
];

fn main() {
    let (keys, requests) = (option("--keys", 100_000), option("--requests", 10_000_000));
    let directory = tempfile::tempdir().unwrap();
    let settings = settings(directory.path());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let (org, tag, user) = (OrgId::generate(), OrgTag::generate().unwrap(), UserId::generate());
    let keys: Vec<KeyId> = (0..keys).map(|_| KeyId::generate(tag).unwrap()).collect();
    let begun = clock::now().before(Duration::from_secs(DAYS * 86_400)).0;
    let journal = Journal::open(settings.clone(), Metrics::new().audit).unwrap();
    let started = Instant::now();
    runtime.block_on(async {
        for batch in 0..requests / BATCH {
            let uses: Vec<Use<'static>> = (batch * BATCH..(batch + 1) * BATCH)
                .map(|n| {
                    // Some keys are busier than others, all of them are used.
                    let spread = n.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
                    let key = if n.is_multiple_of(4) { spread % 50 } else { spread % keys.len() as u64 };
                    Use {
                        id: Uuid::from_u128(u128::from(n) << 64 | u128::from(spread)),
                        time: Micros(begun + n * (DAYS * 86_400_000_000 / requests)),
                        number: None,
                        key_id: Some(keys[usize::try_from(key).unwrap()]),
                        user_id: Some(user),
                        org_id: Some(org),
                        auth_method: AuthMethod::ApiKey,
                        ip: Some([203, 0, 113, 7].into()),
                        user_agent: Some(b"python-requests/2.32.3"),
                        action: ROUTES[usize::try_from(spread % 8).unwrap()],
                        method: "GET",
                        path: "/api/queries",
                        provisional: false,
                        cost: Cost::ONE,
                        budget: None,
                        trace_id: None,
                    }
                })
                .collect();
            let refused = UseEnd { outcome: Outcome::Refused(Refusal::Forbidden), status: Some(403), ..END };
            let end = |spread: u128| if spread.is_multiple_of(50) { refused } else { END };
            for written in join_all(uses.iter().map(|used| journal.record(used, end(used.id.as_u128())))).await {
                assert!(written.unwrap());
            }
        }
        journal.close().await;
    });
    println!("{requests} requests with {} keys were written in {:.0} s", keys.len(), started.elapsed().as_secs_f64());
    let journal = Journal::open(settings.clone(), Metrics::new().audit).unwrap();
    wait_until_tidy(&settings);
    let size = |name: &str| fs::metadata(settings.path.join(name)).map_or(0, |file| file.len()) >> 20;
    println!("index.db {} MiB, its log {} MiB", size("index.db"), size("index.db-wal"));
    let reader = journal.reader().unwrap();
    for range in UsageRange::ALL {
        let of_org = || reader.org_usage(org, range, clock::now(), 10).unwrap().series.periods.len();
        let of_key = || reader.key_usage(org, keys[7], range, clock::now()).unwrap().periods.len();
        let (of_org, of_key) = (measure(of_org), measure(of_key));
        println!("{:>4}: organization {of_org}, key {of_key}", range.name());
    }
    let activity = || reader.activity(org, &keys[..25], clock::now()).unwrap().len();
    println!("24 hours and last requests of 25 keys of a list: {}", measure(activity));
    runtime.block_on(journal.close());
}

/// Waits until the past days are in one row each.
fn wait_until_tidy(settings: &Settings) {
    let hour = clock::now().0 / 3_600_000_000;
    let query = format!("SELECT count(*) FROM usage WHERE hour < {hour} - 48 AND hour % 24 > 0");
    loop {
        let index = rusqlite::Connection::open(settings.path.join("index.db")).unwrap();
        if index.query_row(&query, [], |row| row.get::<_, i64>(0)).is_ok_and(|rows| rows == 0) {
            return;
        }
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// The median, the least and the most of 21 times.
fn measure(mut read: impl FnMut() -> usize) -> String {
    let mut times: Vec<f64> = (0..21)
        .map(|_| {
            let begun = Instant::now();
            assert!(read() > 0);
            begun.elapsed().as_secs_f64() * 1e3
        })
        .collect();
    times.sort_by(f64::total_cmp);
    format!("{:.1} ms ({:.1} to {:.1})", times[10], times[0], times[20])
}

fn option(name: &str, default: u64) -> u64 {
    let mut arguments = std::env::args().skip_while(|argument| argument != name);
    arguments.nth(1).map_or(default, |value| value.parse().unwrap_or_else(|_| panic!("{name} is a number")))
}

fn settings(directory: &Path) -> Settings {
    Settings {
        path: directory.join("audit"),
        durability: Durability::Written,
        on_unavailable: OnUnavailable::Refuse,
        segment_size: 64 << 20,
        segment_age: Duration::from_secs(3600),
        retention_age: None,
        retention_size: None,
        retention_by_volume: false,
        retention_unshipped: 0,
        low_water: LowWater::Percent(1),
        unknown_per_second: 10,
        addresses: Addresses::Full,
        refusals: RefusalRecords::Each,
        checkpoints: None,
        gateway: "gateway-1".into(),
    }
}
