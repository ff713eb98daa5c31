//! The exact share while Redis is unavailable: real gateways on a real Redis, which is stopped or cut off.
//!
//! `crates/state/src/redis/decide/share_history.rs` has the theorem over random histories.

use std::sync::Arc;
use std::time::{Duration, Instant};

use domain::budget::Cost;
use domain::clock;
use domain::key::policy::{Disabled, DisabledBy, Field, PolicyPatch};
use domain::quota::Quota;
use domain::refusal::Refusal;
use state::redis::{Address, Clock, OnUnavailable, Servers, Settings};
use state::{Admitted, Change, DecideRequest, Decision, PolicyScope, Redis as RedisState, State};

use super::cases_key_slots::limit;
use super::cases_unused_keys::sweep;
use super::fixture::{Fixture, HeldKey, fixture_with_key, rotate};
use super::redis::{at, set_up, settings};
use super::redis_heartbeat::fixture_on;
use super::runtime::{block_on, enter};
use crate::state_contract::redis::enter_with_server;
use crate::support::decide::decide_request;
use crate::support::redis::{Cluster, Proxy, Redis};
use crate::support::{is_strict, until};

/// Twenty tokens a second: some of them for each gateway within a second.
const QUOTA: Quota = Quota { requests: 20, per: Duration::from_secs(1), burst: 30, strict: false };
const GATEWAYS: usize = 3;

/// One admission: it was decided between these two times.
#[derive(Clone, Copy)]
struct Use {
    begun: Instant,
    ended: Instant,
    provisional: bool,
}

fn known_keys(address: Address) -> Settings {
    Settings {
        quota: QUOTA,
        concurrent: 1000,
        deadline: Duration::from_millis(50),
        lease: Duration::from_secs(2),
        on_unavailable: OnUnavailable::KnownKeys { max_staleness: Duration::from_secs(60) },
        clock: Clock::Server,
        ..settings(Servers::Single(address))
    }
}

fn open(settings: &Settings) -> Arc<State> {
    Arc::new(State::Redis(block_on(RedisState::open(settings.clone())).unwrap()))
}

/// Waits until all gateways have seen each other, and know it: each entry tells the last join twice.
fn until_settled(server: &Redis, gateways: usize) {
    let entries = || {
        let entries: Vec<(String, Vec<u8>)> = server.query(::redis::cmd("HGETALL").arg("keygate:{gateways}")).unwrap();
        let number = |bytes: &[u8]| f64::from_le_bytes(bytes.try_into().unwrap());
        entries.iter().map(|(_, entry)| [0, 16, 24].map(|at| number(&entry[at..at + 8]))).collect::<Vec<_>>()
    };
    let have_seen = || {
        let entries = entries();
        let latest = entries.iter().map(|[_, joined, _]| *joined).fold(0.0, f64::max);
        let settled = entries.len() == gateways && entries.iter().all(|[_, _, seen]| *seen >= latest);
        settled.then(|| entries.iter().map(|[beat, ..]| *beat).fold(0.0, f64::max))
    };
    let since = until("all gateways have seen each other", have_seen);
    until("all gateways know it", || entries().iter().all(|[beat, ..]| *beat > since).then_some(()));
}

/// Admits a request by Redis, which answers late on a busy machine: the deadline is short.
fn admit_by_redis(state: &State, key: &HeldKey) -> Admitted {
    until("Redis admits the key", || {
        let request = decide_request(&key.digest, clock::now());
        match block_on(state.decide(request)) {
            Ok(Decision::Admitted(admitted)) if !admitted.provisional => Some(admitted),
            _ => None,
        }
    })
}

/// Sends requests until the time, and records what was admitted.
async fn hammer(state: Arc<State>, keys: Vec<HeldKey>, until: Instant) -> Vec<Use> {
    let mut uses = Vec::new();
    for key in keys.iter().cycle() {
        let begun = Instant::now();
        if begun >= until {
            break;
        }
        let request = DecideRequest { id: Some(key.id), ..decide_request(&key.digest, clock::now()) };
        if let Ok(Decision::Admitted(Admitted { provisional, .. })) = state.decide(request).await {
            uses.push(Use { begun, ended: Instant::now(), provisional });
        }
        tokio::time::sleep(Duration::from_millis(3)).await;
    }
    uses
}

fn hammered(gateways: &[Arc<State>], keys: &[HeldKey], time: Duration) -> Vec<Use> {
    let until = Instant::now() + time;
    let tasks: Vec<_> =
        gateways.iter().map(|state| tokio::spawn(hammer(Arc::clone(state), keys.to_vec(), until))).collect();
    tasks.into_iter().flat_map(|task| block_on(task).unwrap()).collect()
}

/// Takes all tokens that Redis has; it answers late on a busy machine.
fn drain_by_redis(state: &State, key: &HeldKey) {
    let request = || decide_request(&key.digest, clock::now());
    while matches!(block_on(state.decide(request())), Ok(Decision::Admitted(_))) {}
}

/// The fewest of so many admissions that show that a gateway admits offline. One whose heartbeat is late, as on a busy
/// machine, admits nothing meanwhile.
fn least(strict: usize) -> usize {
    if is_strict() { strict } else { strict / 4 }
}

/// Checks the bound in every window, from the begin of one request to the end of another.
fn check_windows(uses: &[Use]) {
    let rate = f64::from(QUOTA.requests) / QUOTA.per.as_secs_f64();
    for first in uses {
        let mut ends: Vec<Instant> =
            uses.iter().filter(|use_| use_.begun >= first.begun).map(|use_| use_.ended).collect();
        ends.sort();
        for (count, end) in (1..).zip(ends) {
            let bound = f64::from(QUOTA.burst) + rate * (end - first.begun).as_secs_f64();
            assert!(f64::from(count) <= bound, "{count} in {:?}, where {bound} are allowed", end - first.begun);
        }
    }
}

fn level(server: &Redis, fixture: &Fixture, key: &HeldKey) -> f64 {
    let name = format!("keygate:{{{}}}:key:{}", fixture.tag.as_str(), key.id.as_str());
    let live: Vec<u8> = server.cli(&["HGET", &name, "live"]);
    f64::from_le_bytes(live[8..16].try_into().unwrap()) / QUOTA.per.as_micros() as f64
}

fn used(state: &State, key: &HeldKey) -> usize {
    until("Redis answers", || {
        let key = block_on(state.key(key.id)).ok()?;
        Some(usize::try_from(key.unwrap().uses).unwrap())
    })
}

#[test]
fn bound_holds_over_an_outage_and_everything_is_repaid() {
    let (_entered, server) = enter_with_server();
    let settings = known_keys(at(&server));
    let (_, key) = set_up(&settings, fixture_with_key);
    let gateways: Vec<_> = (0..GATEWAYS).map(|_| open(&settings)).collect();
    until_settled(&server, GATEWAYS);
    // Each gateway knows the key, and the level of another moment.
    let mut uses: Vec<Use> = Vec::new();
    for gateway in &gateways {
        let begun = Instant::now();
        drop(admit_by_redis(gateway, &key));
        uses.push(Use { begun, ended: Instant::now(), provisional: false });
    }
    server.stop_process();
    let stopped = Instant::now();
    uses.extend(hammered(&gateways, &[key], Duration::from_secs(3)));
    let offline = uses.iter().filter(|use_| use_.provisional).count();
    assert!(offline >= least(20), "{offline}: gateways admit without Redis");
    assert!(offline as f64 <= stopped.elapsed().as_secs_f64() * f64::from(QUOTA.requests), "{offline} of the inflow");
    check_windows(&uses);
    server.resume();
    until("every use is counted", || (used(&gateways[0], &key) >= uses.len()).then_some(()));
    gateways.iter().for_each(|gateway| block_on(gateway.close()));
}

/// The record of the gateways is lost, as with a shard of a Cluster. Those that were there divide as before, and one
/// that has started since admits nothing without Redis.
#[test]
fn gateways_divide_as_before_when_their_record_is_lost() {
    let (_entered, server) = enter_with_server();
    let settings = known_keys(at(&server));
    let (_, key) = set_up(&settings, fixture_with_key);
    let gateways: Vec<_> = (0..GATEWAYS).map(|_| open(&settings)).collect();
    until_settled(&server, GATEWAYS);
    let names = || server.cli::<Vec<String>>(&["HKEYS", "keygate:{gateways}"]);
    let before = names();
    server.cli::<()>(&["DEL", "keygate:{gateways}", "keygate:{gateways}:registry"]);
    let newcomer = open(&settings);
    until("all are registered again", || before.iter().all(|name| names().contains(name)).then_some(()));
    until("so is the newcomer", || (names().len() == GATEWAYS + 1).then_some(()));
    let mut uses: Vec<Use> = Vec::new();
    for gateway in gateways.iter().chain([&newcomer]) {
        let begun = Instant::now();
        drop(admit_by_redis(gateway, &key));
        uses.push(Use { begun, ended: Instant::now(), provisional: false });
    }
    server.stop_process();
    let stopped = Instant::now();
    let hammering_newcomer = tokio::spawn(hammer(newcomer, vec![key], stopped + Duration::from_secs(3)));
    uses.extend(hammered(&gateways, &[key], Duration::from_secs(3)));
    let offline = uses.iter().filter(|use_| use_.provisional).count();
    assert!(offline >= least(20), "{offline}: gateways admit without Redis");
    assert_eq!(block_on(hammering_newcomer).unwrap().len(), 0, "the newcomer admits nothing");
    check_windows(&uses);
    server.resume();
    gateways.iter().for_each(|gateway| block_on(gateway.close()));
}

#[test]
fn gateway_that_is_cut_off_repays_its_share_below_zero() {
    let (_entered, server) = enter_with_server();
    let proxy = Proxy::to(server.address());
    let behind = Address { host: "127.0.0.1".into(), port: proxy.address().port() };
    let settings = known_keys(at(&server));
    let (fixture, key) = set_up(&settings, fixture_with_key);
    let (connected, cut) = (open(&settings), open(&known_keys(behind)));
    until_settled(&server, 2);
    drop(admit_by_redis(&cut, &key));
    proxy.refuse(true);
    proxy.cut();
    let begun = Instant::now();
    let uses = hammered(&[Arc::clone(&cut)], &[key], Duration::from_secs(2));
    let share = begun.elapsed().as_secs_f64() * f64::from(QUOTA.requests) / 2.0;
    assert!(uses.len() >= least(5) && uses.len() as f64 <= share, "{} of a share of {share}", uses.len());
    assert!(uses.iter().all(|use_| use_.provisional));
    // Redis gives the others everything; then the share is repaid from an empty bucket.
    let connected_uses = used(&connected, &key);
    proxy.refuse(false);
    until("the share is repaid below zero", || {
        drain_by_redis(&connected, &key);
        (level(&server, &fixture, &key) < 0.0).then_some(())
    });
    let status = || block_on(connected.rate_limit_status(key.id, clock::now())).ok();
    let status = until("Redis answers", status).unwrap();
    assert!(status.remaining == 0 && status.token_in_us > 0);
    assert!(used(&connected, &key) >= connected_uses + uses.len());
    [connected, cut].iter().for_each(|state| block_on(state.close()));
}

/// A sweep of another gateway disables a key as unused while this one admits it without Redis: the use wins.
#[test]
fn use_that_was_not_reported_yet_wins_over_a_sweep() {
    let (_entered, server) = enter_with_server();
    let proxy = Proxy::to(server.address());
    let behind = Address { host: "127.0.0.1".into(), port: proxy.address().port() };
    let settings = known_keys(at(&server));
    let (_, key) = set_up(&settings, fixture_with_key);
    let (connected, cut) = (open(&settings), open(&known_keys(behind)));
    until_settled(&server, 2);
    drop(admit_by_redis(&cut, &key));
    proxy.refuse(true);
    proxy.cut();
    let uses = hammered(&[Arc::clone(&cut)], &[key], Duration::from_secs(1));
    assert!(uses.iter().any(|use_| use_.provisional));
    // By what Redis knows, nobody has used the key since.
    until("the key is swept", || block_on(connected.change(sweep(&key, clock::now()))).ok());
    let disabled = || until("Redis answers", || block_on(connected.key(key.id)).ok()).unwrap().policy.unwrap().disabled;
    assert!(disabled().is_some());
    proxy.refuse(false);
    until("the key is enabled", || disabled().is_none().then_some(()));
    drop(admit_by_redis(&connected, &key));
    // A key that an operator has disabled stays so, whatever is reported.
    let by_operator = PolicyPatch {
        disabled: Field::Set(Disabled { at: clock::now(), by: DisabledBy::Operator }),
        ..PolicyPatch::default()
    };
    proxy.refuse(true);
    proxy.cut();
    hammered(&[Arc::clone(&cut)], &[key], Duration::from_secs(1));
    let (before, scope) = (used(&connected, &key), PolicyScope::Operator);
    let change = Change::set_key_policy(key.id, Box::new(by_operator), scope);
    until("the key is disabled", || block_on(connected.change(change.clone())).ok());
    proxy.refuse(false);
    until("the uses are reported", || (used(&connected, &key) > before).then_some(()));
    assert!(disabled().is_some());
    [connected, cut].iter().for_each(|state| block_on(state.close()));
}

/// The primary of the organization is away, and that of the registrations is not: portions change in the outage.
#[test]
fn inflow_of_a_share_counts_once_when_other_gateways_come_and_go() {
    let _entered = enter();
    let cluster = Cluster::start_with(Redis::options().arg("cluster-require-full-coverage", "no"), 3, 0);
    let registry = cluster.primary_of(cluster.slot_of("gateways"));
    let away = cluster.nodes().iter().find(|node| node.port() != registry.port()).unwrap();
    let servers = Servers::Cluster(cluster.nodes().iter().map(at).collect());
    let settings = Settings { servers, ..known_keys(at(registry)) };
    let (_, key) = set_up(&settings, async |state| fixture_on(state, &cluster, &[away]).await);
    let gateway = open(&settings);
    until_settled(registry, 1);
    drop(admit_by_redis(&gateway, &key));
    away.stop_process();
    let stopped = Instant::now();
    let hammering = tokio::spawn(hammer(Arc::clone(&gateway), vec![key], stopped + Duration::from_secs(8)));
    // The entry of a gateway that joined earlier, and has seen all; each heartbeat finds it come or gone.
    let other: Vec<u8> = [1e15, 9e15, 1.0, 9e15].into_iter().flat_map(f64::to_le_bytes).collect();
    for _ in 0..4 {
        registry.query::<()>(::redis::cmd("HSET").arg("keygate:{gateways}").arg("h:other").arg(&other)).unwrap();
        std::thread::sleep(Duration::from_secs(1));
        registry.query::<()>(::redis::cmd("HDEL").arg("keygate:{gateways}").arg("h:other")).unwrap();
        std::thread::sleep(Duration::from_secs(1));
    }
    let uses = block_on(hammering).unwrap();
    let last = uses.last().expect("some were admitted").ended;
    let inflow = (last - stopped).as_secs_f64() * f64::from(QUOTA.requests);
    assert!(uses.iter().all(|use_| use_.provisional));
    assert!(uses.len() >= least(40) && uses.len() as f64 <= inflow, "{} of an inflow of {inflow}", uses.len());
    away.resume();
    block_on(gateway.close());
}

#[test]
fn all_secrets_of_a_key_draw_on_one_share() {
    let (_entered, server) = enter_with_server();
    let settings = known_keys(at(&server));
    let (old, new) = set_up(&settings, async |state| {
        let ((_, old), now) = (fixture_with_key(state).await, clock::now());
        let new = rotate(state, &old, now, now.after(Duration::from_secs(600))).await;
        (old, new)
    });
    let gateway = open(&settings);
    until_settled(&server, 1);
    [&old, &new].into_iter().for_each(|key| drop(admit_by_redis(&gateway, key)));
    server.stop_process();
    let stopped = Instant::now();
    let uses = hammered(&[Arc::clone(&gateway)], &[old, new], Duration::from_secs(2));
    let inflow = stopped.elapsed().as_secs_f64() * f64::from(QUOTA.requests);
    assert!(uses.len() >= least(10) && uses.len() as f64 <= inflow, "{} of an inflow of {inflow}", uses.len());
    server.resume();
    block_on(gateway.close());
}

#[test]
fn slots_are_shared_of_those_that_were_free() {
    let (_entered, server) = enter_with_server();
    let settings = Settings { concurrent: 8, ..known_keys(at(&server)) };
    let (_, key) = set_up(&settings, fixture_with_key);
    share_slots(&server, &settings, &key, Refusal::TooManyInFlight);
}

#[test]
fn slots_of_a_key_are_shared_of_those_that_were_free() {
    let (_entered, server) = enter_with_server();
    let settings = Settings { concurrent: 100, ..known_keys(at(&server)) };
    let key = set_up(&settings, async |state| {
        let (_, key) = fixture_with_key(state).await;
        limit(state, &key, Some(8)).await;
        key
    });
    share_slots(&server, &settings, &key, Refusal::KeyTooManyInFlight);
}

/// Of eight slots, three are held when the server stops.
fn share_slots(server: &Redis, settings: &Settings, key: &HeldKey, full_by: Refusal) {
    let gateways: Vec<_> = (0..GATEWAYS).map(|_| open(settings)).collect();
    until_settled(server, GATEWAYS);
    // The first holds three; all know then that five are free, but the first, which saw the fewest taken.
    let held: Vec<Admitted> = (0..3).map(|_| admit_by_redis(&gateways[0], key)).collect();
    gateways.iter().skip(1).for_each(|gateway| drop(admit_by_redis(gateway, key)));
    until("released slots are reported", || {
        let status = block_on(gateways[0].rate_limit_status(key.id, clock::now())).ok()?.unwrap();
        let of_key = status.key_slots.is_none_or(|slots| slots.in_flight == 3);
        (status.in_flight == 3 && of_key).then_some(())
    });
    server.stop_process();
    let mut offline: Vec<Admitted> = Vec::new();
    let deadline = Instant::now() + Duration::from_secs(3);
    let mut full = [false; GATEWAYS];
    while Instant::now() < deadline && !full.iter().all(|full| *full) {
        for (gateway, full) in gateways.iter().zip(&mut full) {
            let request = decide_request(&key.digest, clock::now());
            match block_on(gateway.decide(request)) {
                Ok(Decision::Admitted(admitted)) => offline.push(admitted),
                Ok(Decision::Denied { refusal, .. }) if refusal == full_by => *full = true,
                _ => {}
            }
        }
    }
    assert_eq!(full, [true; GATEWAYS]);
    assert!(
        (3..=5).contains(&offline.len()),
        "{} of five free slots, of which a gateway saw one or two taken",
        offline.len()
    );
    server.resume();
    drop((held, offline));
    gateways.iter().for_each(|gateway| block_on(gateway.close()));
}

/// A request that costs several tokens takes them of the share, and all of them are repaid.
#[test]
fn cost_that_was_admitted_without_redis_is_repaid() {
    let (_entered, server) = enter_with_server();
    let proxy = Proxy::to(server.address());
    let behind = Address { host: "127.0.0.1".into(), port: proxy.address().port() };
    let settings = known_keys(at(&server));
    let (fixture, key) = set_up(&settings, fixture_with_key);
    let (connected, cut) = (open(&settings), open(&known_keys(behind)));
    until_settled(&server, 2);
    drop(admit_by_redis(&cut, &key));
    proxy.refuse(true);
    proxy.cut();
    let ask = |cost| {
        block_on(cut.decide(DecideRequest { cost: Cost::fixed(cost), ..decide_request(&key.digest, clock::now()) }))
    };
    let begun = Instant::now();
    until("the share has ten tokens", || {
        matches!(ask(10), Ok(Decision::Admitted(Admitted { provisional: true, .. }))).then_some(())
    });
    assert!(begun.elapsed() >= Duration::from_millis(900), "ten tokens of half of 20 a second: {:?}", begun.elapsed());
    // Half of the burst is this gateway's: it never has more, whatever time a refusal would name.
    assert!(ask(QUOTA.burst / 2 + 1).is_err());
    let counted = used(&connected, &key);
    proxy.refuse(false);
    until("the use is reported", || (used(&connected, &key) > counted).then_some(()));
    // The bucket was full again when it was told of the use.
    assert!((level(&server, &fixture, &key) - f64::from(QUOTA.burst - 10)).abs() < 0.001);
    [connected, cut].iter().for_each(|state| block_on(state.close()));
}
