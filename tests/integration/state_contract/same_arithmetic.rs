//! Bucket arithmetic in Lua equals that in Rust, to the unit, for every quota up to the largest.

use keygate::clock::Micros;
use keygate::quota::Quota;
use keygate::state::bucket::{Bucket, REORDERED_US};
use proptest::prelude::*;
use proptest::test_runner::TestRunner;

use super::same_trace::quotas;
use crate::support::redis::Redis;

/// Computations of each kind. One takes some 50 µs.
const CASES: u32 = 10_000;
/// Beyond any time that a clock shows, and exact in a double.
const LATEST: u64 = 8_000_000_000_000_000;

#[test]
fn lua_refill_equals_rust() {
    let server = Redis::start();
    let lua = |words: [u64; 5]| -> Vec<u64> {
        let [level, at, requests, capacity, now] = words.map(|word| word.to_string());
        evaluated(&server, "refilled", &[&level, &at, &requests, &capacity, &now])
    };
    let times = (0..=LATEST, elapsed()).prop_map(|(at, elapsed)| (at, at.saturating_add_signed(elapsed).min(LATEST)));
    check(&(filled(), times), |((quota, level), (at, now))| {
        let capacity = Bucket::full(quota, Micros(0)).level;
        let expected = Bucket { level, at: Micros(at) }.refill(quota, Micros(now));
        let refilled = lua([level, at, u64::from(quota.requests), capacity, now]);
        prop_assert_eq!(refilled, [expected.level, expected.at.0]);
        Ok(())
    });
}

#[test]
fn lua_conversion_equals_rust() {
    let server = Redis::start();
    let lua = |words: [u64; 4]| -> Vec<u64> {
        let [level, was, per, capacity] = words.map(|word| word.to_string());
        evaluated(&server, "converted", &[&level, &was, &per, &capacity])
    };
    check(&(filled(), quotas()), |((old, level), new)| {
        let capacity = Bucket::full(new, Micros(0)).level;
        let expected = Bucket { level, at: Micros(0) }.convert(old.per_micros(), new);
        prop_assert_eq!(lua([level, old.per_micros(), new.per_micros(), capacity]), [expected.level]);
        Ok(())
    });
}

fn check<S: Strategy>(inputs: &S, test: impl Fn(S::Value) -> Result<(), TestCaseError>) {
    let config = ProptestConfig { cases: CASES, failure_persistence: None, ..Default::default() };
    TestRunner::new(config).run(inputs, test).unwrap_or_else(|error| panic!("{error}"));
}

/// A quota, and a level that its bucket may have.
fn filled() -> impl Strategy<Value = (Quota, u64)> {
    quotas().prop_flat_map(|quota| {
        let capacity = Bucket::full(quota, Micros(0)).level;
        let levels = prop_oneof![Just(0), Just(capacity), capacity.saturating_sub(3)..=capacity, 0..=capacity];
        (Just(quota), levels)
    })
}

fn elapsed() -> impl Strategy<Value = i64> {
    let late = i64::try_from(REORDERED_US).unwrap();
    let longest = i64::try_from(LATEST).unwrap();
    prop_oneof![Just(0), 0..100_i64, 0..10_000_000_i64, 0..longest, -late - 3..-late + 3, -late..0, -longest..0,]
}

/// Result of a function of the scripts, as exact integers.
fn evaluated(server: &Redis, function: &str, arguments: &[&str]) -> Vec<u64> {
    let functions = include_str!("../../../src/state/redis/scripts/bucket.lua");
    let script = format!(
        "{functions}\n\
         for i = 1, #ARGV do ARGV[i] = tonumber(ARGV[i]) end\n\
         local results = {{ {function}(unpack(ARGV)) }}\n\
         for i = 1, #results do results[i] = string.format('%.17g', results[i]) end\n\
         return results"
    );
    let numbers: Vec<String> = server.cli(&[&["EVAL", &script, "0"], arguments].concat());
    numbers.iter().map(|number| number.parse().unwrap_or_else(|_| panic!("{number} is no integer"))).collect()
}
