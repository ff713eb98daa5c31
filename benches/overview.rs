//! Time of the usage of a range: of an organization with many keys, and of one of them, by the index of the journal.
//!
//! `cargo bench --bench overview -- [--keys 100000] [--requests 10000000] [--postgresql URL]`. With an empty database,
//! the journal is shipped there, and the usage of all gateways is read as well, by the sums of the records in it.
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
    Addresses, AuditView, BillingPeriod, Durability, Fleet, Journal, LowWater, OnUnavailable, Outcome, Reader,
    RefusalRecords, Settings, UsageBy, UsageQuery, UsageRange, Use, UseEnd, ViewScope,
};
use journal::shipping::{self, Destination, PostgresqlSettings, ShippedRecords, Shippers, SinkSettings};
use platform::metrics::Metrics;
use platform::postgresql;
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
    let other = Reader::open(&settings.path).unwrap();
    for (by, per) in [(UsageBy::Org, BillingPeriod::Month), (UsageBy::Key, BillingPeriod::Day)] {
        let query = UsageQuery { by, per, since: None, until: None, by_gateway: false, org: None, budget: None };
        let rows = |reader: &Reader| reader.usage(query, clock::now()).unwrap().rows.len();
        let begun = Instant::now();
        let scanned = rows(&other);
        let seconds = begun.elapsed().as_secs_f64();
        println!(
            "usage by {by:?} and {per}, {scanned} rows: {}; by the journal {seconds:.1} s",
            measure(|| rows(&reader))
        );
    }
    if let Some(url) = text_option("--postgresql") {
        read_all_gateways(&journal, &url, org, keys[7]);
    }
    let activity = || reader.activity(org, &keys[..25], clock::now()).unwrap().len();
    println!("24 hours and last requests of 25 keys of a list: {}", measure(activity));
    runtime.block_on(journal.close());
}

/// Ships the journal, and reads the usage of all gateways.
fn read_all_gateways(journal: &Journal, url: &str, org: OrgId, key: KeyId) {
    let database = postgresql::Settings::parse(url, None).unwrap();
    let destination = Destination::Postgresql(PostgresqlSettings { database: database.clone(), retention: None });
    let sink = SinkSettings { name: "central".into(), destination, records: ShippedRecords::All };
    let started = Instant::now();
    let shippers =
        Shippers::start(journal.tap(), &shipping::Settings { sinks: vec![sink] }, &Metrics::new().shipping).unwrap();
    shippers.finish(Duration::from_secs(3600));
    println!("shipped in {:.0} s", started.elapsed().as_secs_f64());
    let view = AuditView::of_journal(journal.clone());
    view.set_fleet(Some(Fleet::open(database, Duration::from_secs(3)).unwrap()));
    let of_org = |range| {
        let (usage, status) = view.org_usage(org, range, clock::now(), 10).unwrap();
        let requests: u64 = usage.series.periods.iter().map(|period| period.sums.requests).sum();
        (status.unwrap().scope == ViewScope::Fleet).then_some(requests)
    };
    let started = Instant::now();
    while of_org(UsageRange::Day).is_none() {
        std::thread::sleep(Duration::from_millis(100));
    }
    println!("all records were added up in {:.0} s", started.elapsed().as_secs_f64());
    for range in UsageRange::ALL {
        let of_key = || view.key_usage(org, key, range, clock::now()).unwrap().0.periods.len();
        let of_org = || usize::try_from(of_org(range).unwrap()).unwrap();
        println!("{:>4}: of all gateways: organization {}, key {}", range.name(), measure(of_org), measure(of_key));
    }
    // After some seconds, the next page has what is new pulled, and waits for that.
    let after_a_while = || {
        std::thread::sleep(Duration::from_secs(3));
        let begun = Instant::now();
        assert!(of_org(UsageRange::Days(30)).is_some());
        begun.elapsed().as_secs_f64() * 1e3
    };
    let mut times: Vec<f64> = (0..7).map(|_| after_a_while()).collect();
    times.sort_by(f64::total_cmp);
    println!(" 30d: of all gateways, with what is new: {:.1} ms ({:.1} to {:.1})", times[3], times[0], times[6]);
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
    text_option(name).map_or(default, |value| value.parse().unwrap_or_else(|_| panic!("{name} is a number")))
}

fn text_option(name: &str) -> Option<String> {
    std::env::args().skip_while(|argument| argument != name).nth(1)
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
