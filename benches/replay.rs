//! `keygate replay` on a week of an audit journal: requests of many keys, by Zipf's law, decided by an embedded state
//! in virtual time and recorded by the journal's own writer; replayed by the same file, and by half of the limit.
//!
//! `cargo bench --bench replay -- 10000000 10000` gives the numbers of requests and keys. Without `--bench`, as under
//! `cargo test`, a small journal is tried out.
#![allow(clippy::print_stdout, reason = "a benchmark prints its figures")]
#![allow(clippy::unwrap_used, missing_docs, reason = "a benchmark fails by panicking, and has no public API")]
#![allow(clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "below 2^52")]

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use domain::budget::Cost;
use domain::clock::{self, Micros};
use domain::identity::{AuthMethod, OrgId, UserId};
use domain::key::{KeyDigest, KeyId, OrgTag, PlainKey};
use journal::audit::{Journal, Outcome, Use, UseEnd};
use keygate::config::Config;
use platform::metrics::Metrics;
use state::bucket::Bucket;
use state::migration;
use state::{
    DecideRequest, Decision, Key, KeyActors, KeyExport, Org, RouteAccess, State, StateRecord, User, UserExport,
};
use uuid::Uuid;

const WEEK: u64 = 7 * 86_400_000_000;
const KEYS_OF_AN_ORG: usize = 100;
const LIMIT: &str = "requests: 1000, per: 1h";
const HALF: &str = "requests: 500, per: 1h";
const CONFIG: &str = "
listen: [{ address: 127.0.0.1:0 }]
admin: { socket: admin.sock, address: 127.0.0.1:0 }
upstream: { endpoints: [http://127.0.0.1:8081] }
state: { embedded: { path: state.db } }
audit: { path: audit, low_water: 0%, refusals: each }
limits: { key: { requests: 1000, per: 1h } }
routes:
  - { name: queries.list, methods: [GET], path: /api/queries }
  - { name: queries.one, methods: [GET], path: '/api/queries/{id}' }
";

/// A key as requests name it.
type Caller = (KeyId, KeyDigest, UserId, OrgId);

/// Numbers that seem random (xorshift64*).
struct Random(u64);

impl Random {
    /// A number from 0 on and below 1.
    fn part(&mut self) -> f64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 11) as f64 / (1_u64 << 53) as f64
    }

    fn exponential(&mut self, mean: f64) -> u64 {
        (-(1.0 - self.part()).ln() * mean) as u64
    }
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let is_bench = arguments.iter().any(|argument| argument == "--bench");
    let numbers: Vec<usize> = arguments.iter().filter_map(|argument| argument.parse().ok()).collect();
    let [requests, keys] = match numbers[..] {
        [requests, keys] => [requests, keys],
        _ if is_bench => [10_000_000, 10_000],
        _ => [2_000, 10],
    };
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("same.yaml");
    fs::write(&file, CONFIG).unwrap();
    let half = directory.path().join("half.yaml");
    fs::write(&half, CONFIG.replace(LIMIT, HALF)).unwrap();
    let begun = Instant::now();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let refused = runtime.block_on(generate(&Config::load(&file).unwrap(), requests, keys));
    println!("{requests} requests of {keys} keys, {refused} of them refused, recorded in {:?}", begun.elapsed());
    let export = directory.path().join("export");
    run(&["state", "export", "--out", export.to_str().unwrap()], &file, &[0]);
    for (file, codes) in [(&file, &[0][..]), (&half, &[0, 3])] {
        let begun = Instant::now();
        run(&["replay", "--since", "8d", "--json", "--state", export.to_str().unwrap()], file, codes);
        let took = begun.elapsed();
        println!("replayed in {took:?}, {:.0} a second", requests as f64 / took.as_secs_f64());
    }
}

fn run(arguments: &[&str], config: &Path, codes: &[i32]) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_keygate"));
    let output = command.args(arguments).arg("--config").arg(config).output().unwrap();
    println!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(codes.contains(&output.status.code().unwrap()));
}

/// Decides and records the requests of a week. Returns the number of those that were refused.
async fn generate(config: &Config, requests: usize, keys: usize) -> u64 {
    let state::Settings::Embedded(settings) = &config.state else { panic!("the state is embedded") };
    let state = State::Embedded(state::Embedded::open(settings).unwrap());
    let start = clock::now().before(Duration::from_micros(WEEK));
    let callers = create_keys(&state, keys, start).await;
    let State::Embedded(embedded) = &state else { unreachable!("opened as such") };
    let journal = Journal::open(config.audit.clone(), Metrics::new().audit).unwrap();
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    let mut sum = 0.0;
    let weights: Vec<f64> = (1..=keys)
        .map(|rank| {
            sum += 1.0 / rank as f64;
            sum
        })
        .collect();
    let (mut now, mut refused, mut open) = (start, 0, BTreeMap::new());
    for number in 0..requests {
        now = Micros(now.0 + random.exponential(WEEK as f64 / requests as f64));
        while let Some(ended) = open.first_entry().filter(|ended| *ended.key() <= (now, 0)) {
            drop(ended.remove());
        }
        let at = random.part() * sum;
        let (key, digest, user, org) = callers[weights.partition_point(|sum| *sum <= at).min(keys - 1)];
        let request = DecideRequest {
            digest: &digest,
            id: None,
            access: RouteAccess::Everyone,
            cost: Cost::ONE,
            client: None,
            now,
        };
        let decided = embedded.decide(request);
        let path = format!("/api/queries/{}", number % 1000);
        let opening = Use {
            id: Uuid::now_v7(),
            time: now,
            number: None,
            key_id: Some(key),
            user_id: Some(user),
            org_id: Some(org),
            auth_method: AuthMethod::ApiKey,
            ip: Some([203, 0, 113, 7].into()),
            user_agent: Some(b"curl/8.5.0"),
            action: "queries.one",
            method: "GET",
            path: &path,
            provisional: false,
            cost: Cost::ONE,
            budget: None,
            trace_id: None,
        };
        let duration_us = random.exponential(50_000.0);
        let end = |outcome, status| UseEnd {
            outcome,
            status: Some(status),
            duration_us,
            request_bytes: 0,
            response_bytes: 947,
        };
        match decided {
            Decision::Admitted(admitted) => {
                open.insert((Micros(now.0 + duration_us), number), admitted);
                journal
                    .begin(&Use { number: Some(number as u64), ..opening })
                    .await
                    .unwrap()
                    .close(end(Outcome::Completed, 200));
            }
            Decision::Denied { refusal, .. } => {
                refused += 1;
                journal.record_refusal(&opening, end(Outcome::of_refusal(refusal).unwrap(), 429)).await.unwrap();
            }
        }
    }
    drop(open);
    journal.close().await;
    state.close().await;
    refused
}

/// Creates organizations with a user and keys each.
async fn create_keys(state: &State, keys: usize, created: Micros) -> Vec<Caller> {
    let mut callers = Vec::new();
    while callers.len() < keys {
        let tag = OrgTag::generate().unwrap();
        let org = Org::new(OrgId::generate(), tag, format!("org-{}", callers.len()), created);
        let user = User::new(UserId::generate(), org.id, "ada@example.com", created);
        let (org_id, user_id) = (org.id, user.id);
        let user = UserExport { user, creation: None };
        let mut records = vec![StateRecord::Org(org), StateRecord::User(Box::new(user))];
        for _ in 0..KEYS_OF_AN_ORG.min(keys - callers.len()) {
            let id = KeyId::generate(tag).unwrap();
            let digest = PlainKey::generate(id).unwrap().digest();
            let (key, quota) = (Key::new(id, org_id, user_id, "key", created), state.quota());
            let (bucket, actors) = (Bucket::full(quota, created), KeyActors::default());
            let export = KeyExport { key, digest, previous: None, replaced: Vec::new(), bucket, quota, actors };
            records.push(StateRecord::Key(Box::new(export)));
            callers.push((id, digest, user_id, org_id));
        }
        assert!(migration::import(&records, state).await.unwrap().conflicts.is_empty());
    }
    callers
}
