//! The theorem of `share`, over random histories: gateways that join, pause, leave and die, outages of Redis, gateways
//! that are cut off alone, and clocks that differ. Redis is played by a bucket and a list of gateways; what gateways
//! compute is the code that serves.

mod world;

use std::time::Duration;

use proptest::prelude::*;

use crate::bucket::capacity;
use domain::quota::Quota;
use world::{Random, START, World};

/// Steps of one history.
const STEPS: usize = 1500;

fn quotas() -> impl Strategy<Value = Quota> {
    (1..=20_u32, 1..=5_u64, 1..=20_u32).prop_map(|(requests, per, burst)| Quota {
        requests,
        per: Duration::from_secs(per),
        burst,
        strict: false,
    })
}

/// A history in which Redis is away for all gateways at once. When it is back, all report before the first request.
fn with_outages(quota: Quota, seed: u64) -> World {
    let mut random = Random(seed);
    let mut world = World::new(quota);
    (0..=random.below(6)).for_each(|_| world.join(&mut random));
    for _ in 0..STEPS {
        world.step(&mut random);
        world.change_gateways(&mut random);
        if random.one_in(if world.redis.up { 100 } else { 60 }) {
            world.redis.up = !world.redis.up;
            if world.redis.up {
                world.gateways.keys().copied().collect::<Vec<_>>().into_iter().for_each(|number| world.answer(number));
            }
        }
    }
    world
}

/// Histories of each kind; more with `KEYGATE_HISTORIES`.
fn histories() -> ProptestConfig {
    let histories = std::env::var("KEYGATE_HISTORIES").ok().and_then(|text| text.parse().ok());
    ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(histories.unwrap_or(60)) }
}

proptest! {
    #![proptest_config(histories())]

    #[test]
    fn bound_holds_in_every_window_over_outages((quota, seed) in (quotas(), any::<u64>())) {
        let world = with_outages(quota, seed);
        prop_assert!(world.excess(|_| true) <= 0, "{} units too many", world.excess(|_| true));
    }

    #[test]
    fn gateways_that_are_cut_off_exceed_by_their_share_and_repay_it((quota, seed) in (quotas(), any::<u64>())) {
        let mut random = Random(seed);
        let mut world = World::new(quota);
        (0..=random.below(6)).for_each(|_| world.join(&mut random));
        // Units of the inflow of the shares that are cut off.
        let mut inflow = 0.0;
        for _ in 0..STEPS {
            let before = world.now;
            let portions = world.portions();
            world.step(&mut random);
            world.change_gateways(&mut random);
            let rate: f64 = portions.iter().map(|portion| 1.0 / f64::from(portion.count())).sum();
            inflow += rate * ((world.now - before) * u64::from(quota.requests)) as f64;
            for gateway in world.gateways.values_mut() {
                gateway.cut ^= random.one_in(80);
            }
            world.redis.up ^= random.one_in(200);
        }
        prop_assert!(world.excess(|redis| redis) <= 0, "Redis keeps the bound alone");
        let offline = world.admitted.iter().filter(|(_, redis)| !redis).count() as u64 * quota.per_micros();
        prop_assert!(offline as f64 <= inflow + 1.0, "{offline} units of {inflow}");
        // Everything is repaid: once the bucket is not below zero, no more was admitted than Redis would have.
        world.redis.up = true;
        for number in world.gateways.keys().copied().collect::<Vec<_>>() {
            world.gateways.get_mut(&number).unwrap().cut = false;
            world.answer(number);
        }
        let bucket = world.redis.bucket;
        let end = if bucket.level < 0 { bucket.level.unsigned_abs().div_ceil(u64::from(quota.requests)) } else { 0 };
        let all = world.admitted.len() as u64 * quota.per_micros();
        let allowed = capacity(quota) + (world.now + end - START) * u64::from(quota.requests);
        prop_assert!(all <= allowed, "{all} units of {allowed}");
    }
}
