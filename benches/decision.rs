//! Cost of one decision: with one key, and with random keys of directories of growing size.
//!
//! `cargo bench --bench decision`; without `--bench`, as under `cargo test`, each case runs once, and the largest
//! directory is left out.
#![allow(clippy::unwrap_used, missing_docs, reason = "a benchmark fails by panicking, and has no public API")]

mod changes;

use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

use criterion::{BenchmarkGroup, Criterion, criterion_group, criterion_main, measurement::WallTime};

use changes::make;
use domain::budget::Cost;
use domain::clock::{self, Micros};
use domain::identity::{OrgId, Permission, UserId};
use domain::key::{KeyDigest, KeyId, OrgTag};
use domain::quota::{MAX_TOKENS, Quota};
use state::embedded::Settings;
use state::{Change, DecideRequest, Decision, Embedded, Key, Org, RouteAccess, User};

/// A bucket that no benchmark empties.
const PLENTY: Quota = Quota { requests: MAX_TOKENS, per: Duration::from_secs(1), burst: MAX_TOKENS, strict: false };
/// Changes handed over at once: the state commits what waits together.
const BATCH: usize = 10_000;
/// Keys of one user, and users of one organization.
const KEYS_PER_USER: usize = 10;
const USERS_PER_ORG: usize = 10;

/// A directory of many keys.
struct Crowd {
    state: Arc<Embedded>,
    digests: Vec<KeyDigest>,
    settings: Settings,
    _dir: tempfile::TempDir,
}

impl Crowd {
    fn new(keys: usize) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let settings = Settings {
            path: dir.path().join("state.db"),
            quota: PLENTY,
            concurrent: 1_000_000,
            plans: state::LimitPlans::NONE,
        };
        let state = Arc::new(Embedded::open(&settings).unwrap());
        let mut changes = Vec::with_capacity(BATCH);
        let mut digests = Vec::with_capacity(keys);
        let (mut org, mut user) = (OrgId::generate(), UserId::generate());
        for number in 0..keys {
            if number % (KEYS_PER_USER * USERS_PER_ORG) == 0 {
                org = OrgId::generate();
                changes.push(Change::CreateOrg(new_org(org, number / (KEYS_PER_USER * USERS_PER_ORG))));
            }
            if number % KEYS_PER_USER == 0 {
                user = UserId::generate();
                changes.push(Change::CreateUser(new_user(org, user)));
            }
            let digest = KeyDigest::of(&number.to_le_bytes());
            digests.push(digest);
            changes.push(Change::CreateKey { key: new_key(org, user, number), digest });
            if changes.len() >= BATCH || number + 1 == keys {
                make(&state, std::mem::take(&mut changes));
            }
        }
        Self { state, digests, settings, _dir: dir }
    }
}

/// A number as base62 text of this many digits.
fn base62(mut number: usize, digits: usize) -> String {
    let alphabet = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
    let mut text = vec![b'0'; digits];
    for digit in text.iter_mut().rev() {
        *digit = alphabet[number % 62];
        number /= 62;
    }
    String::from_utf8(text).unwrap()
}

fn new_org(id: OrgId, number: usize) -> Org {
    let tag: OrgTag = base62(number, 3).parse().unwrap();
    Org::new(id, tag, format!("org {number}"), Micros(1))
}

fn new_user(org: OrgId, id: UserId) -> User {
    let permissions = vec!["queries:read".parse().unwrap(), "queries:write".parse().unwrap()];
    User { permissions, ..User::new(id, org, id.to_string(), Micros(1)) }
}

fn new_key(org: OrgId, user: UserId, number: usize) -> Key {
    let id: KeyId = base62(number, 9).parse().unwrap();
    Key::new(id, org, user, format!("key {number}"), Micros(1))
}

/// A decision and the return of its slot.
fn decide(state: &Embedded, digest: &KeyDigest, required: &Permission, now: Micros) {
    let decision = state.decide(DecideRequest {
        digest,
        id: None,
        access: RouteAccess::Permission(required),
        cost: Cost::ONE,
        client: None,
        now,
    });
    assert!(matches!(black_box(decision), Decision::Admitted(_)));
}

fn one_key(group: &mut BenchmarkGroup<'_, WallTime>) {
    let crowd = Crowd::new(1);
    let read: Permission = "queries:read".parse().unwrap();
    let digest = crowd.digests[0];
    group.bench_function("one_key", |b| b.iter(|| decide(&crowd.state, &digest, &read, clock::now())));
    let unknown = KeyDigest::of(b"unknown");
    let ask = DecideRequest {
        digest: &unknown,
        id: None,
        access: RouteAccess::Everyone,
        cost: Cost::ONE,
        client: None,
        now: clock::now(),
    };
    group.bench_function("unknown_key", |b| b.iter(|| black_box(crowd.state.decide(ask))));
}

fn many_keys(group: &mut BenchmarkGroup<'_, WallTime>, keys: usize) {
    let began = Instant::now();
    let crowd = Crowd::new(keys);
    let created = began.elapsed();
    let read: Permission = "queries:read".parse().unwrap();
    let mut random = 0x9e37_79b9_7f4a_7c15_u64;
    group.bench_function(format!("random_of_{keys}"), |b| {
        b.iter(|| {
            // xorshift64: good enough to defeat the caches, and cheap.
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            let digest = &crowd.digests[random as usize % keys];
            decide(&crowd.state, digest, &read, clock::now());
        });
    });
    let Crowd { state, settings, _dir, .. } = crowd;
    let began = Instant::now();
    drop(state);
    let closed = began.elapsed();
    let began = Instant::now();
    drop(Embedded::open(&settings).unwrap());
    tracing::info!(keys, ?created, ?closed, opened = ?began.elapsed(), "directory");
}

fn decisions(criterion: &mut Criterion) {
    tracing_subscriber::fmt().with_writer(std::io::stderr).init();
    let mut group = criterion.benchmark_group("decision");
    group.sample_size(20).warm_up_time(Duration::from_secs(1)).measurement_time(Duration::from_secs(3));
    one_key(&mut group);
    many_keys(&mut group, 10);
    many_keys(&mut group, 10_000);
    if std::env::args().any(|argument| argument == "--bench") {
        many_keys(&mut group, 1_000_000);
    }
    group.finish();
}

criterion_group!(benches, decisions);
criterion_main!(benches);
