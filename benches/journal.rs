//! Cost of the audit journal: per request, and at a start.
#![allow(clippy::unwrap_used, missing_docs, reason = "a benchmark")]
#![allow(clippy::print_stdout, reason = "a benchmark prints its figures")]

use std::hint::black_box;
use std::path::Path;
use std::time::{Duration, Instant};

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use domain::budget::Cost;
use domain::clock;
use domain::identity::{AuthMethod, OrgId, UserId};
use domain::key::{KeyId, OrgTag};
use journal::audit::{
    Checkpoints, Durability, Journal, LowWater, OnUnavailable, Outcome, Settings, Use, UseEnd, generate_key,
};
use platform::metrics::Metrics;
use tempfile::TempDir;
use tokio::task::JoinSet;
use uuid::Uuid;

const END: UseEnd = UseEnd {
    outcome: Outcome::Completed,
    status: Some(200),
    duration_us: 1500,
    request_bytes: 0,
    response_bytes: 4096,
};
const AGENT: &[u8] = b"Mozilla/5.0 (X11; Linux x86_64; rv:128.0) Gecko/20100101 Firefox/128.0";

#[derive(Clone, Copy)]
struct Who(KeyId, UserId, OrgId);

impl Who {
    fn anyone() -> Self {
        Self(KeyId::generate(OrgTag::generate().unwrap()).unwrap(), UserId::generate(), OrgId::generate())
    }

    fn uses(self) -> Use<'static> {
        Use {
            id: Uuid::now_v7(),
            time: clock::now(),
            number: Some(4711),
            key_id: Some(self.0),
            user_id: Some(self.1),
            org_id: Some(self.2),
            auth_method: AuthMethod::ApiKey,
            ip: Some([203, 0, 113, 7].into()),
            user_agent: Some(AGENT),
            action: "queries.list",
            method: "GET",
            path: "/api/queries",
            provisional: false,
            cost: Cost::ONE,
            budget: None,
            trace_id: None,
        }
    }
}

fn open(directory: &Path, durability: Durability) -> Journal {
    open_with(directory, durability, None)
}

fn open_with(directory: &Path, durability: Durability, checkpoints: Option<Checkpoints>) -> Journal {
    let settings = Settings {
        path: directory.to_owned(),
        durability,
        on_unavailable: OnUnavailable::Refuse,
        segment_size: 256 << 20,
        segment_age: Duration::from_secs(86_400),
        retention_age: None,
        retention_size: Some(1 << 30),
        retention_by_volume: false,
        retention_unshipped: 0,
        low_water: LowWater::Percent(10),
        unknown_per_second: 10,
        refusals: journal::audit::RefusalRecords::Coalesced,
        addresses: journal::audit::Addresses::Full,
        gateway: "bench".into(),
        checkpoints,
    };
    Journal::open(settings, Metrics::new().audit).unwrap()
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

/// The time that `threads` threads take for `uses` uses each.
fn written(journal: &Journal, threads: u64, uses: u64) -> Duration {
    let begun = Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                let who = Who::anyone();
                runtime().block_on(async {
                    for _ in 0..uses {
                        journal.begin(black_box(&who.uses())).await.unwrap().close(END);
                    }
                });
            });
        }
    });
    begun.elapsed()
}

/// The time of a batch of concurrent uses.
async fn synced(journal: &Journal, concurrent: usize) {
    let mut uses = JoinSet::new();
    for _ in 0..concurrent {
        let journal = journal.clone();
        uses.spawn(async move { journal.begin(&Who::anyone().uses()).await.unwrap().close(END) });
    }
    uses.join_all().await;
}

fn durabilities(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("journal/written");
    for threads in [1, 2] {
        let directory = TempDir::new().unwrap();
        let journal = open(directory.path(), Durability::Written);
        group.throughput(Throughput::Elements(threads));
        group.bench_function(BenchmarkId::new("begin+close, threads", threads), |bencher| {
            bencher.iter_custom(|uses| written(&journal, threads, uses));
        });
    }
    group.finish();
    let mut group = criterion.benchmark_group("journal/synced");
    for concurrent in [1, 64] {
        let directory = TempDir::new().unwrap();
        let journal = open(directory.path(), Durability::Synced);
        let runtime = runtime();
        group.throughput(Throughput::Elements(concurrent as u64));
        group.bench_function(BenchmarkId::new("begin+close, concurrent", concurrent), |bencher| {
            bencher.iter(|| runtime.block_on(synced(&journal, concurrent)));
        });
    }
    group.finish();
}

fn recovery(criterion: &mut Criterion) {
    // In test mode a small segment shows that it works.
    let size: u64 = if std::env::args().any(|arg| arg == "--bench") { 64 << 20 } else { 64 << 10 };
    let directory = TempDir::new().unwrap();
    let journal = open(directory.path(), Durability::Written);
    let segment = directory.path().join("0000000001.jsonl");
    while segment.metadata().unwrap().len() < size {
        written(&journal, 1, 100);
    }
    runtime().block_on(journal.close());
    let mut group = criterion.benchmark_group("journal/recovery");
    group.throughput(Throughput::Bytes(size)).sample_size(10);
    group.bench_function("open a segment of 64 MiB", |bencher| {
        bencher.iter_custom(|times| {
            (0..times)
                .map(|_| {
                    let begun = Instant::now();
                    let journal = open(directory.path(), Durability::Written);
                    let elapsed = begun.elapsed();
                    runtime().block_on(journal.close());
                    elapsed
                })
                .sum()
        });
    });
    group.finish();
}

fn checkpoints(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("journal/checkpoints");
    for threads in [1, 2] {
        for is_on in [false, true] {
            let directory = TempDir::new().unwrap();
            let key_file = directory.path().join("key");
            std::fs::write(&key_file, &*generate_key("bench").unwrap().0).unwrap();
            let checkpoints = Checkpoints { key_file, origin: None, witnesses: Vec::new() };
            let journal = open_with(directory.path(), Durability::Written, is_on.then_some(checkpoints));
            let before = processor_times();
            group.throughput(Throughput::Elements(threads));
            group.bench_function(
                BenchmarkId::new(if is_on { "with, threads" } else { "without, threads" }, threads),
                |bencher| {
                    bencher.iter_custom(|uses| written(&journal, threads, uses));
                },
            );
            let [tree, all] = std::array::from_fn(|n| processor_times()[n] - before[n]);
            println!("hashing and signing: {tree} of {all} ticks of processor time");
            runtime().block_on(journal.close());
        }
    }
    group.finish();
}

/// Processor time of the checkpoint thread and of the process, in ticks.
fn processor_times() -> [u64; 2] {
    let time = |path: &str| {
        let stat = std::fs::read_to_string(path).unwrap_or_default();
        let fields: Vec<u64> = stat
            .rsplit(')')
            .next()
            .unwrap_or_default()
            .split_whitespace()
            .skip(11)
            .take(2)
            .flat_map(str::parse)
            .collect();
        fields.iter().sum::<u64>()
    };
    let tasks = std::fs::read_dir("/proc/self/task").unwrap().map(|task| task.unwrap().path().display().to_string());
    let is_tree =
        |task: &String| std::fs::read_to_string(format!("{task}/comm")).is_ok_and(|name| name.trim() == "audit-tree");
    [tasks.filter(is_tree).map(|task| time(&format!("{task}/stat"))).sum(), time("/proc/self/stat")]
}

criterion_group!(benches, durabilities, checkpoints, recovery);
criterion_main!(benches);
