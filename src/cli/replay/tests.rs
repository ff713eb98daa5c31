//! Replays in virtual time, compared with an embedded state that decides the same requests at the same times.

use std::collections::BTreeMap;

use proptest::collection::vec;
use proptest::prelude::*;
use uuid::Uuid;

use super::*;
use crate::admission::RouteSettings;
use domain::budget::{Budget, Cost, Period, Spender};
use domain::identity::{AuthMethod, OrgId, UserId};
use domain::key::{OrgTag, PlainKey};
use domain::quota::Quota;
use domain::refusal::Refusal;
use journal::audit::{Outcome, Record};
use report::KeyChanges;
use state::{Admitted, DecideRequest, Decision, Defaults, LimitPlan, LimitPlans, Org, User};

const START: Micros = Micros(1_800_000_000_000_000);
/// Paths, each with its cost and whether the keys lack its permission; the last one leads nowhere.
const PATHS: [(&str, u32, bool); 5] =
    [("/one", 1, false), ("/three", 3, false), ("/large", 9, false), ("/other", 1, true), ("/nowhere", 1, false)];

/// Changed decisions, by cause and by key.
type Changes = (BTreeMap<(&'static str, &'static str), u64>, BTreeMap<UsedKey, KeyChanges>);

/// A request of a trace.
#[derive(Clone, Debug)]
struct Traced {
    key: usize,
    path: usize,
    /// Microseconds since the request before it.
    pause: u64,
    duration: u64,
    /// Microseconds from its arrival to its decision.
    delay: u64,
}

fn traces(keys: usize) -> impl Strategy<Value = Vec<Traced>> {
    let pause = prop_oneof![6 => 0..30_000_u64, 2 => 0..600_u64, 1 => 0..3_000_000_u64];
    let path = prop_oneof![6 => Just(0_usize), 2 => 1..PATHS.len()];
    let traced = (0..keys, path, pause, 0..400_000_u64, 0..1000_u64)
        .prop_map(|(key, path, pause, duration, delay)| Traced { key, path, pause, duration, delay });
    vec(traced, 1..400)
}

fn quota(requests: u32, burst: u32) -> Quota {
    Quota { requests, per: Duration::from_secs(1), burst, strict: false }
}

/// Limits of a plan for all, with a budget of organizations.
fn defaults(quota: Quota, concurrent: u32, units: u64) -> Defaults {
    let budget = Some(Budget { units, per: Period::Day, of: Spender::Org });
    let plan = LimitPlan { quota, concurrent: None, budget };
    let name: domain::plan_name::PlanName = "all".parse().unwrap();
    let plans = LimitPlans::new(BTreeMap::from([(name.clone(), plan)]), Some(name));
    Defaults { plans, ..Defaults::new(quota, concurrent) }
}

/// An organization with some keys; each second one has a slot of its own.
fn excerpt(keys: usize) -> Excerpt {
    let mut excerpt = Excerpt::default();
    let tag = OrgTag::generate().unwrap();
    let org = Org::new(OrgId::generate(), tag, "acme", START);
    let user = User::new(UserId::generate(), org.id, "ada@example.com", START);
    for number in 0..keys {
        let id = KeyId::generate(tag).unwrap();
        let digest = PlainKey::generate(id).unwrap().digest();
        let policy = KeyPolicy { concurrent: (number % 2 == 1).then_some(1), ..KeyPolicy::default() };
        let key = Key { policy: policy.boxed(), ..Key::new(id, org.id, user.id, number.to_string(), START) };
        excerpt.keys.insert(id, (key, digest));
    }
    excerpt.users.insert(user.id, user);
    excerpt.orgs.insert(org.id, org);
    excerpt
}

fn copy(excerpt: &Excerpt) -> Excerpt {
    let Excerpt { orgs, users, keys, .. } = excerpt;
    Excerpt { orgs: orgs.clone(), users: users.clone(), keys: keys.clone(), ..Excerpt::default() }
}

async fn open(excerpt: &Excerpt, defaults: Defaults) -> Embedded {
    let State::Embedded(state) = State::of_excerpt(defaults, copy(excerpt), START).await.unwrap() else {
        panic!("an excerpt is in memory")
    };
    state
}

fn settings() -> Vec<RouteSettings> {
    let listed = PATHS.iter().take(4).map(|(path, cost, is_lacking)| RouteSettings {
        cost: Cost::fixed(*cost),
        permission: is_lacking.then(|| "x:y".parse().unwrap()),
        ..RouteSettings::new(&path[1..], path)
    });
    listed.collect()
}

/// Decides the requests of a trace on a state, in the order of their decisions, at the times of their arrival; returns
/// their times and refusals in the order of the trace.
fn decide(state: &Embedded, excerpt: &Excerpt, trace: &[Traced], delayed: bool) -> Vec<(Micros, Option<Refusal>)> {
    let routes = settings();
    let routes = Routes::new(&routes, &Metrics::new());
    let keys: Vec<KeyDigest> = excerpt.keys.values().map(|(_, digest)| *digest).collect();
    let mut now = START;
    let times: Vec<Micros> = trace
        .iter()
        .map(|traced| {
            now = Micros(now.0 + traced.pause);
            now
        })
        .collect();
    let mut order: Vec<usize> = (0..trace.len()).collect();
    order.sort_by_key(|at| times[*at].0 + if delayed { trace[*at].delay } else { 0 });
    let mut open: Vec<(Micros, Admitted)> = Vec::new();
    let mut decided = vec![(START, None); trace.len()];
    for at in order {
        let (traced, now) = (&trace[at], times[at]);
        open.retain(|(end, _)| *end > now);
        let head = http::Request::get(PATHS[traced.path].0).body(()).unwrap().into_parts().0;
        let route = routes.find(&head);
        let digest = &keys[traced.key];
        let request = DecideRequest { digest, id: None, access: route.access(), cost: route.cost, client: None, now };
        decided[at] = match state.decide(request) {
            Decision::Admitted(admitted) => {
                open.push((Micros(now.0 + traced.duration), admitted));
                (now, None)
            }
            Decision::Denied { refusal, .. } => (now, Some(refusal)),
        };
    }
    decided
}

/// The records of what was decided; with `folded`, one for several refusals of a key and cause within a second.
fn records(excerpt: &Excerpt, trace: &[Traced], decided: &[(Micros, Option<Refusal>)], folded: bool) -> Vec<Record> {
    let keys: Vec<&Key> = excerpt.keys.values().map(|(key, _)| key).collect();
    let mut records: Vec<Record> = Vec::new();
    for (traced, (time, refusal)) in trace.iter().zip(decided) {
        let key = keys[traced.key];
        let outcome = refusal.map_or(Outcome::Completed, |refusal| Outcome::of_refusal(refusal).unwrap());
        let group = records
            .iter_mut()
            .rev()
            .take_while(|record| time.since(record.time) < 1_000_000)
            .find(|record| record.key_id == Some(key.id) && record.outcome == outcome);
        if let Some(group) = group.filter(|_| folded && refusal.is_some()) {
            group.count = Some(group.uses() + 1);
            group.last_time = Some(*time);
            continue;
        }
        let path = PATHS[traced.path].0;
        records.push(Record {
            id: Uuid::nil(),
            time: *time,
            key_id: Some(key.id),
            user_id: Some(key.user),
            org_id: Some(key.org),
            auth_method: AuthMethod::ApiKey,
            actor: None,
            subject: None,
            token_id: None,
            ip: None,
            user_agent: None,
            action: path[1..].to_owned(),
            method: "GET".to_owned(),
            path: path.to_owned(),
            provisional: false,
            cost: None,
            budget: None,
            outcome,
            status: Some(200),
            duration_us: Some(traced.duration),
            request_bytes: None,
            response_bytes: None,
            gateway: "g".to_owned(),
            count: None,
            last_time: None,
            addresses: None,
            ips: Vec::new(),
            trace_id: None,
            test: false,
        });
    }
    records
}

fn replay(state: &Embedded, excerpt: &Excerpt, records: &[Record], margin: Duration) -> Report {
    let settings = settings();
    let routes = Routes::new(&settings, &Metrics::new());
    let keys: Keys = excerpt.keys.values().map(used_key).collect();
    let mut gateway = VirtualGateway::new(state, (&routes, &settings), &keys, margin, START, None);
    records.iter().for_each(|record| gateway.add(record));
    gateway.finish()
}

/// The changes from one sequence of decisions to another one, by cause and by key.
fn changes(excerpt: &Excerpt, trace: &[Traced], [before, after]: [&[(Micros, Option<Refusal>)]; 2]) -> Changes {
    let word =
        |refusal: Option<Refusal>| refusal.map_or("admitted", |refusal| Outcome::of_refusal(refusal).unwrap().name());
    let ids: Vec<KeyId> = excerpt.keys.keys().copied().collect();
    let (mut causes, mut keys) = (BTreeMap::new(), BTreeMap::<UsedKey, KeyChanges>::new());
    for ((traced, (_, before)), (_, after)) in trace.iter().zip(before).zip(after) {
        if word(*before) == word(*after) {
            continue;
        }
        *causes.entry((word(*before), word(*after))).or_default() += 1;
        let of_key = keys.entry(UsedKey::Key(ids[traced.key])).or_default();
        match (before, after) {
            (None, _) => of_key.refused += 1,
            (_, None) => of_key.admitted += 1,
            _ => of_key.other_cause += 1,
        }
    }
    (causes, keys)
}

fn run<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(future)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn same_configuration_changes_nothing(
        trace in traces(3), requests in 1..60_u32, burst in 5..20_u32, concurrent in 1..4_u32, units in 50..300_u64,
        folded: bool,
    ) {
        // A folded record has the time of its last refusal, and not its place among the requests of that microsecond.
        let pause = |traced: Traced| Traced { pause: traced.pause.max(folded.into()), ..traced };
        let trace: Vec<Traced> = trace.into_iter().map(pause).collect();
        let (excerpt, limits) = (excerpt(3), defaults(quota(requests, burst), concurrent, units));
        let [recorded, replayed] = [limits.clone(), limits].map(|limits| run(open(&excerpt, limits)));
        let decided = decide(&recorded, &excerpt, &trace, false);
        let records = records(&excerpt, &trace, &decided, folded);
        let report = replay(&replayed, &excerpt, &records, Duration::ZERO);
        prop_assert!(report.causes.is_empty(), "{:?}", report);
        let refused = decided.iter().filter(|(_, refusal)| refusal.is_some()).count() as u64;
        prop_assert_eq!(report.totals(), [trace.len() as u64, refused, refused]);
    }

    /// Threads decide within the margin, in another order than requests arrived in.
    #[test]
    fn order_within_the_margin_changes_nothing(trace in traces(2), requests in 1..60_u32, burst in 1..20_u32) {
        let (excerpt, limits) = (excerpt(1), defaults(quota(requests, burst), 1000, 1_000_000));
        let trace: Vec<Traced> = trace.into_iter().map(|traced| Traced { key: 0, ..traced }).collect();
        let [recorded, replayed] = [limits.clone(), limits].map(|limits| run(open(&excerpt, limits)));
        let decided = decide(&recorded, &excerpt, &trace, true);
        let records = records(&excerpt, &trace, &decided, false);
        let report = replay(&replayed, &excerpt, &records, MARGIN);
        prop_assert!(report.causes.is_empty(), "{:?}", report);
    }

    #[test]
    fn half_of_the_limit_refuses_what_a_gateway_refuses(
        trace in traces(4), requests in 2..60_u32, burst in 2..20_u32, units in 50..300_u64,
    ) {
        let excerpt = excerpt(1);
        let trace: Vec<Traced> = trace.into_iter().map(|traced| Traced { key: 0, ..traced }).collect();
        let halved = defaults(quota(requests / 2, burst / 2), 1000, units / 2);
        let recorded = run(open(&excerpt, defaults(quota(requests, burst), 1000, units)));
        let [fed, replayed] = [halved.clone(), halved].map(|limits| run(open(&excerpt, limits)));
        let [before, after] = [&recorded, &fed].map(|state| decide(state, &excerpt, &trace, false));
        let records = records(&excerpt, &trace, &before, false);
        let report = replay(&replayed, &excerpt, &records, Duration::ZERO);
        let (causes, keys) = changes(&excerpt, &trace, [&before, &after]);
        prop_assert_eq!(&report.causes, &causes);
        prop_assert_eq!(&report.keys, &keys);
    }
}

/// Of a second in which a client was refused a hundred times, twice the limit admits twice as many.
#[test]
fn folded_refusals_are_admitted_by_a_larger_limit() {
    let excerpt = excerpt(1);
    let traced = Traced { key: 0, path: 0, pause: 10_000, duration: 0, delay: 0 };
    let trace = vec![traced; 1000];
    let [once, twice] = [10, 20].map(|requests| defaults(quota(requests, requests), 1000, 1_000_000));
    let decided = decide(&run(open(&excerpt, once)), &excerpt, &trace, false);
    let records = records(&excerpt, &trace, &decided, true);
    assert!(records.len() < 200, "{}", records.len());
    let report = replay(&run(open(&excerpt, twice)), &excerpt, &records, Duration::ZERO);
    let [requests, refused, would_refuse] = report.totals();
    assert_eq!((requests, refused), (1000, 891));
    assert!((782..=802).contains(&would_refuse), "{would_refuse}: 20 and 10 s of 20, up to one second's tokens late");
    assert!(report.folded > 700);
}

#[test]
fn buckets_are_warmed_up_for_the_longest_refill_and_the_period() {
    let excerpt = excerpt(1);
    let ids: Vec<_> = excerpt.keys.values().map(|key| used_key(key).1).collect();
    let hourly = Quota { requests: 100, per: Duration::from_secs(3600), burst: 200, strict: false };
    let without = run(open(&excerpt, Defaults::new(hourly, 10)));
    assert_eq!(warm_up(&without, ids.iter(), START), START.before(Duration::from_secs(7200)));
    let with = run(open(&excerpt, defaults(quota(1, 1), 10, 10)));
    assert_eq!(warm_up(&with, ids.iter(), START), Period::Day.around(START).start);
}
