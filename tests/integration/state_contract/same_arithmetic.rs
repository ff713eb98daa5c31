//! Bucket arithmetic in Lua equals that in Rust, to the unit, for every quota up to the largest.

use domain::clock::Micros;
use domain::quota::Quota;
use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use state::bucket::{Bucket, REORDERED_US, capacity};

use super::same_trace::quotas;
use crate::support::redis::Redis;

/// Computations of each kind. One takes some 50 µs.
const CASES: u32 = 10_000;
/// Beyond any time that a clock shows, and exact in a double.
const LATEST: u64 = 8_000_000_000_000_000;

#[test]
fn lua_refill_equals_rust() {
    let server = Redis::start();
    let times = (0..=LATEST, elapsed()).prop_map(|(at, elapsed)| (at, at.saturating_add_signed(elapsed).min(LATEST)));
    check(&(filled(), times), |((quota, level), (at, now))| {
        let expected = Bucket { level, at: Micros(at) }.refill(quota, Micros(now));
        let numbers = [exact(quota.requests), exact(capacity(quota)), exact(now)];
        let refilled = evaluated(&server, "refilled", &[&[level, exact(at)][..], &numbers].concat());
        prop_assert_eq!(refilled, [expected.level, exact(expected.at.0)]);
        Ok(())
    });
}

#[test]
fn lua_conversion_equals_rust() {
    let server = Redis::start();
    check(&(filled(), quotas()), |((old, level), new)| {
        let expected = Bucket { level, at: Micros(0) }.convert(old.per_micros(), new);
        let numbers = [level, exact(old.per_micros()), exact(new.per_micros()), exact(capacity(new))];
        prop_assert_eq!(evaluated(&server, "converted", &numbers), [expected.level]);
        Ok(())
    });
}

/// The time before a quota came into force counts by the one before it.
#[test]
fn lua_settlement_equals_refill_conversion_and_refill() {
    let server = Redis::start();
    let spans = (0..=LATEST / 4, 0..=LATEST / 4, prop_oneof![Just(0), 0..=LATEST / 4]);
    check(&(filled(), quotas(), spans), |((old, level), new, (at, elapsed, age))| {
        let (bucket, now) = (Bucket { level, at: Micros(at) }, at + elapsed);
        let begin = Micros(now.saturating_sub(age).max(at));
        let expected = bucket.refill(old, begin).convert(old.per_micros(), new).refill(new, Micros(now));
        let measured = [exact(old.requests), exact(old.per_micros()), exact(capacity(old))];
        let in_force = [exact(new.requests), exact(new.per_micros()), exact(capacity(new)), exact(age), exact(now)];
        let arguments = [&[level, exact(at)][..], &measured, &in_force].concat();
        prop_assert_eq!(evaluated(&server, "settled_by", &arguments), [expected.level, exact(now)]);
        Ok(())
    });
}

fn exact(number: impl Into<u64>) -> i64 {
    i64::try_from(number.into()).unwrap()
}

fn check<S: Strategy>(inputs: &S, test: impl Fn(S::Value) -> Result<(), TestCaseError>) {
    let config = ProptestConfig { cases: CASES, failure_persistence: None, ..Default::default() };
    TestRunner::new(config).run(inputs, test).unwrap_or_else(|error| panic!("{error}"));
}

/// A quota, and a level that its bucket may have, also below zero.
fn filled() -> impl Strategy<Value = (Quota, i64)> {
    quotas().prop_flat_map(|quota| {
        let full = Bucket::full(quota, Micros(0));
        let lowest = full.repay(quota, u64::MAX).level;
        let full = full.level;
        let levels = prop_oneof![
            Just(0),
            Just(full),
            Just(lowest),
            (full - 3).max(0)..=full,
            0..=full,
            lowest..=0,
            -1000..=0_i64
        ];
        let levels = levels.prop_map(move |level: i64| level.max(lowest));
        (Just(quota), levels)
    })
}

fn elapsed() -> impl Strategy<Value = i64> {
    let late = i64::try_from(REORDERED_US).unwrap();
    let longest = i64::try_from(LATEST).unwrap();
    prop_oneof![Just(0), 0..100_i64, 0..10_000_000_i64, 0..longest, -late - 3..-late + 3, -late..0, -longest..0,]
}

/// Result of a function of the scripts, as exact integers.
fn evaluated(server: &Redis, function: &str, arguments: &[i64]) -> Vec<i64> {
    let functions = include_str!("../../../crates/state/src/redis/scripts/bucket.lua");
    let script = format!(
        "{functions}\n\
         local function settled_by(level, at, requests, per, capacity, ...)\n\
           return settled(level, at, struct.pack('<ddd', requests, per, capacity), ...)\n\
         end\n\
         for i = 1, #ARGV do ARGV[i] = tonumber(ARGV[i]) end\n\
         local results = {{ {function}(unpack(ARGV)) }}\n\
         for i = 1, #results do results[i] = string.format('%.17g', results[i]) end\n\
         return results"
    );
    let arguments: Vec<String> = arguments.iter().map(ToString::to_string).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let numbers: Vec<String> = server.cli(&[&["EVAL", &script, "0"], &arguments[..]].concat());
    numbers.iter().map(|number| number.parse().unwrap_or_else(|_| panic!("{number} is no integer"))).collect()
}
