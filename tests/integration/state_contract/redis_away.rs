//! What happens to Redis, and what becomes of requests meanwhile and afterwards, under both policies.
//!
//! Of every ordeal: while it lasts, every request that begins is answered as the policy says; none waits much longer
//! than the deadline; when Redis is back, so is the service, by itself; and no slot is left behind, no use counted twice.
//!
//! `KEYGATE_STRICT=1` also holds the times: 20 ms above the deadline at the 99th percentile, and back within 2 s. They are
//! printed in any case; on a machine that is busy with other tests they say little.

use std::time::{Duration, Instant};

use keygate::clock;
use keygate::refusal::Refusal;
use keygate::state::redis::{Address, Clock, OnUnavailable, Servers, Settings};
use keygate::state::{Redis as RedisState, State};

use super::redis::settings;
use super::redis_load::{Load, Outcome, PLENTY, Sample};
use super::runtime::{block_on, enter};
use super::tenancy::{admit, tenant};
use crate::support::redis::{Hole, Options, Proxy, Redis};
use crate::support::until;

/// How long a decision may take.
const DEADLINE: Duration = Duration::from_millis(50);
const STALENESS: Duration = Duration::from_secs(60);

/// Redis, and the network before it.
struct Place {
    server: Redis,
    proxy: Proxy,
}

/// Something that happens to Redis.
struct Ordeal {
    options: Options,
    begins: fn(&Place),
    ends: fn(&Place),
    /// Whether Redis decides all the same.
    harmless: bool,
    /// What requests become afterwards.
    after: Outcome,
}

impl Ordeal {
    fn new(begins: fn(&Place), ends: fn(&Place)) -> Self {
        Self { options: Redis::options(), begins, ends, harmless: false, after: Outcome::Admitted }
    }

    /// Under both policies.
    fn run(self) {
        self.under(OnUnavailable::Deny);
        self.under(OnUnavailable::KnownKeys { max_staleness: STALENESS });
    }

    fn under(&self, policy: OnUnavailable) {
        let _entered = enter();
        let server = self.options.clone().start();
        let proxy = Proxy::to(server.address());
        let place = Place { server, proxy };
        let mut load = Load::start(quick(&place.proxy, policy));
        (self.begins)(&place);
        let begun = Instant::now();
        let meanwhile = |outcome: Outcome| match (self.harmless, policy) {
            (true, _) => outcome == Outcome::Admitted,
            (false, OnUnavailable::Deny) => matches!(outcome, Outcome::Unavailable(_)),
            (false, OnUnavailable::KnownKeys { .. }) => outcome == Outcome::Provisional,
        };
        load.see(300, meanwhile);
        let ended = Instant::now();
        (self.ends)(&place);
        let returned = load.see(300, |outcome| outcome == self.after);
        let samples = load.end();
        let wrong = samples.iter().find(|sample| {
            let during = sample.begun > begun && sample.begun + sample.took + DEADLINE < ended;
            during && !meanwhile(sample.outcome)
        });
        assert!(wrong.is_none(), "{policy:?}: {wrong:?}, {:?} after it began", wrong.map(|wrong| wrong.begun - begun));
        judge(&samples, begun, returned, policy);
        if self.after == Outcome::Admitted {
            load.until_no_slot_is_taken(&place.server);
            counted_once(&load, &samples);
        }
    }
}

/// A state that has a hurry.
fn quick(proxy: &Proxy, on_unavailable: OnUnavailable) -> Settings {
    let address = Address { host: "127.0.0.1".into(), port: proxy.address().port() };
    Settings {
        quota: PLENTY,
        concurrent: 1000,
        deadline: DEADLINE,
        lease: Duration::from_secs(2),
        on_unavailable,
        clock: Clock::Server,
        ..settings(Servers::Single(address))
    }
}

/// None waits much longer than the deadline, and the service is back soon.
fn judge(samples: &[Sample], begun: Instant, returned: Duration, policy: OnUnavailable) {
    let mut waits: Vec<_> = samples.iter().filter(|sample| sample.begun > begun).map(|sample| sample.took).collect();
    waits.sort();
    let (p99, longest) = (waits[waits.len() * 99 / 100], waits[waits.len() - 1]);
    println!("{policy:?}: of {} requests p99 {p99:?}, longest {longest:?}; back after {returned:?}", waits.len());
    let strict = std::env::var_os("KEYGATE_STRICT").is_some();
    let (most, back) = if strict { (DEADLINE + Duration::from_millis(20), 2) } else { (Duration::from_secs(2), 20) };
    assert!(p99 <= most, "p99 {p99:?}");
    assert!(returned <= Duration::from_secs(back), "back after {returned:?}");
    assert!(longest < Duration::from_secs(10), "one waited {longest:?}");
}

/// Whoever was admitted is counted, and of the others at most those whose answers were lost.
fn counted_once(load: &Load, samples: &[Sample]) {
    let count = |what: fn(&Outcome) -> bool| samples.iter().filter(|sample| what(&sample.outcome)).count() as u64;
    let admitted = count(|outcome| matches!(outcome, Outcome::Admitted | Outcome::Provisional));
    // A question that was asked of Redis and whose answer was late may have become a provisional admission: two uses.
    let lost = count(|outcome| matches!(outcome, Outcome::Unavailable(_) | Outcome::Provisional));
    let uses = super::redis_load::settled_uses(load, admitted);
    assert!((admitted..=admitted + lost).contains(&uses), "{uses} counted of {admitted} admitted and {lost} unclear");
}

#[test]
fn killed_and_started_again_from_its_disk() {
    let ordeal = Ordeal::new(|place| place.server.kill(), |place| place.server.restart());
    Ordeal { options: Redis::options().appendonly(), ..ordeal }.run();
}

#[test]
fn killed_and_started_again_empty() {
    let ordeal = Ordeal::new(|place| place.server.kill(), |place| place.server.restart_empty());
    Ordeal { after: Outcome::Refused(Refusal::Unknown), ..ordeal }.run();
}

#[test]
fn stopped() {
    Ordeal::new(|place| place.server.stop_process(), |place| place.server.resume()).run();
}

#[test]
fn behind_a_black_hole() {
    Ordeal::new(|place| place.proxy.black_hole(Hole::Swallow), |place| place.proxy.heal()).run();
}

#[test]
fn behind_a_network_that_delivers_everything_later() {
    Ordeal::new(|place| place.proxy.black_hole(Hole::Hold), |place| place.proxy.heal()).run();
}

#[test]
fn heard_and_never_answering() {
    Ordeal::new(|place| place.proxy.black_hole_answers(Hole::Swallow), |place| place.proxy.heal()).run();
}

#[test]
fn refusing_connections() {
    let begins = |place: &Place| {
        place.proxy.refuse(true);
        place.proxy.cut();
    };
    Ordeal::new(begins, |place| place.proxy.refuse(false)).run();
}

#[test]
fn paused() {
    // Nobody is heard until it is over, not even who would end it.
    let begins = |place: &Place| place.server.cli(&["CLIENT", "PAUSE", "3000", "ALL"]);
    let ends = |place: &Place| until("the pause is over", || place.server.try_cli(&["PING"]).ok());
    Ordeal::new(begins, ends).run();
}

#[test]
fn paused_for_writes() {
    let begins = |place: &Place| place.server.cli(&["CLIENT", "PAUSE", "60000", "WRITE"]);
    Ordeal::new(begins, |place| place.server.cli(&["CLIENT", "UNPAUSE"])).run();
}

#[test]
fn made_a_replica_that_takes_no_writes() {
    let begins = |place: &Place| place.server.cli(&["REPLICAOF", "127.0.0.1", "1"]);
    Ordeal::new(begins, |place| place.server.cli(&["REPLICAOF", "NO", "ONE"])).run();
}

#[test]
fn out_of_memory() {
    let begins = |place: &Place| place.server.cli(&["CONFIG", "SET", "maxmemory", "1"]);
    Ordeal::new(begins, |place| place.server.cli(&["CONFIG", "SET", "maxmemory", "0"])).run();
}

#[test]
fn slow_by_200_ms() {
    Ordeal::new(|place| place.proxy.delay(Duration::from_millis(200)), |place| place.proxy.delay(Duration::ZERO)).run();
}

#[test]
fn without_its_scripts() {
    let ordeal = Ordeal::new(|place| place.server.cli(&["SCRIPT", "FLUSH"]), |_| {});
    Ordeal { harmless: true, ..ordeal }.run();
}

/// Admitted by Redis, whose answer was late, and without it: that is one use.
#[test]
fn an_admission_that_was_only_late_counts_once() {
    let _entered = enter();
    let server = Redis::start();
    let proxy = Proxy::to(server.address());
    let policy = OnUnavailable::KnownKeys { max_staleness: STALENESS };
    let state = State::Redis(block_on(RedisState::open(quick(&proxy, policy))).unwrap());
    let (_, key) = block_on(tenant(&state));
    assert!(!block_on(admit(&state, &key, clock::now())).provisional);
    proxy.delay(Duration::from_millis(150));
    let late = block_on(admit(&state, &key, clock::now()));
    assert!((late.provisional, late.number) == (true, 2));
    proxy.delay(Duration::ZERO);
    drop(late);
    let mut uses = 2;
    let decided = until("Redis decides again", || {
        uses += 1;
        let admitted = block_on(admit(&state, &key, clock::now()));
        (!admitted.provisional).then_some(admitted)
    });
    drop(decided);
    let counted = || block_on(state.key(key.id)).unwrap().unwrap().uses;
    until("every use is counted", || (counted() >= uses).then_some(()));
    block_on(state.close());
    assert_eq!(counted(), uses, "each counts once");
}
