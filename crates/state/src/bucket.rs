//! Token bucket: pure arithmetic over (bucket, quota, now).
//!
//! # Guarantee
//!
//! In any window of length `T` the admitted requests cost at most `burst + inflow * T / per` tokens, exactly, where
//! each costs one unless its route says more: a bucket holds at most `burst` tokens when the window begins, and
//! `inflow` tokens flow in during each `per`. `inflow` is `requests`; in a strict quota it is `requests + 1 - burst`,
//! so that no window of one `per` admits more than `requests`. A refused request takes nothing, so any number of
//! refused requests does not delay the next token.
//!
//! # Arithmetic
//!
//! A bucket's level is an integer number of *units*, where one token is as many units as `per` has microseconds. So
//! every microsecond exactly `inflow` units flow in, nothing is ever rounded, and many small refills are worth
//! exactly one large one. [`Quota::validate`] keeps a full bucket below 2^53, and the elapsed time is compared with
//! the time to full before it is multiplied: every intermediate result is exact in an `f64` too, so a Lua script can
//! repeat this line by line.

use domain::clock::Micros;
use domain::quota::{EXACT, Quota};

/// Microseconds by which the time of a decision may lie before that of the last one without counting as a
/// clock that was set back.
///
/// Requests are decided in another order than they read the clock in: a thread can be suspended in between. Within this
/// bound nothing flows in and the bucket's time stays, so that no microsecond is ever counted twice. Beyond it the
/// clock was set back, and the bucket follows it; otherwise it would get no tokens until the old time is reached. One
/// second is longer than a thread is suspended on a machine that still serves, and short enough to go without tokens.
pub const REORDERED_US: u64 = 1_000_000;

/// A token bucket. Its owner keeps the quota that it is measured in.
///
/// - `level <= burst * per`, in units.
/// - `level` is as of `at`; tokens that flowed in since are added by [`Bucket::refill`].
/// - `level` is negative after offline uses were repaid ([`Bucket::repay`]), until as many tokens have flowed in. The
///   deficit is capped so that a full bucket and the deficit together stay below 2^53 units; uses beyond the cap are
///   forgiven. With 1000 per hour the cap is 2.5 million requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bucket {
    /// Tokens in units: one token is as many units as `per` has microseconds.
    pub level: i64,
    /// Time of the level.
    pub at: Micros,
}

impl Bucket {
    /// A bucket with `burst` tokens.
    pub fn full(quota: Quota, now: Micros) -> Self {
        Self { level: signed(capacity(quota)), at: now }
    }

    /// Returns the bucket with the tokens that flowed in until `now`.
    #[must_use]
    pub fn refill(self, quota: Quota, now: Micros) -> Self {
        if now < self.at {
            // Never refilled from an earlier time: that time was counted already.
            let set_back = self.at.since(now) > REORDERED_US;
            return Self { at: if set_back { now } else { self.at }, ..self };
        }
        let elapsed = now.since(self.at);
        // Compared before it is multiplied: a long pause would exceed the exact range.
        let level = if elapsed >= self.full_in_us(quota) {
            signed(capacity(quota))
        } else {
            self.level + signed(elapsed * u64::from(quota.inflow()))
        };
        Self { level, at: now }
    }

    /// Returns the bucket after `cost` tokens were taken at `now`. All of them or none: a cost above the burst is never
    /// admitted.
    ///
    /// # Errors
    /// The microseconds until there are as many whole tokens, when there are fewer. Nothing is taken then.
    pub fn try_take(self, quota: Quota, cost: u32, now: Micros) -> Result<Self, u64> {
        let refilled = self.refill(quota, now);
        // A cost of at most the burst is exact; one above it is refused, however it is rounded.
        let level = refilled.level.saturating_sub(signed(quota.per_micros().saturating_mul(u64::from(cost))));
        if level < 0 { Err(refilled.tokens_in_us(quota, cost)) } else { Ok(Self { level, ..refilled }) }
    }

    /// Returns the bucket after `tokens` were taken; all of its tokens when it has fewer.
    #[must_use]
    pub fn charge(self, quota: Quota, tokens: u64) -> Self {
        let charged = self.level.saturating_sub(signed(tokens.saturating_mul(quota.per_micros())));
        Self { level: charged.max(self.level.min(0)), ..self }
    }

    /// Returns the bucket after `tokens` were taken that it may not have: below zero if need be.
    #[must_use]
    pub fn repay(self, quota: Quota, tokens: u64) -> Self {
        let repaid = self.level.saturating_sub(signed(tokens.saturating_mul(quota.per_micros())));
        Self { level: repaid.max(lowest(quota)), ..self }
    }

    /// Whole tokens in it at its time; none when it is below zero.
    pub fn remaining(self, quota: Quota) -> u32 {
        u32::try_from(self.level.max(0) / signed(quota.per_micros())).unwrap_or(u32::MAX)
    }

    /// Microseconds from its time until it is full.
    pub fn full_in_us(self, quota: Quota) -> u64 {
        (signed(capacity(quota)) - self.level).max(0).unsigned_abs().div_ceil(u64::from(quota.inflow()))
    }

    /// Microseconds from its time until there are `cost` whole tokens in it; zero when there are.
    pub fn tokens_in_us(self, quota: Quota, cost: u32) -> u64 {
        let needed = signed(quota.per_micros().saturating_mul(u64::from(cost)));
        needed.saturating_sub(self.level).max(0).unsigned_abs().div_ceil(u64::from(quota.inflow()))
    }

    /// Returns the bucket under another quota, when its level was measured with a `per` of `per_us` microseconds. Its
    /// tokens stay, capped by the new burst; a fraction of a unit is rounded down.
    #[must_use]
    pub fn convert(self, per_us: u64, quota: Quota) -> Self {
        let product = i128::from(self.level) * i128::from(quota.per_micros());
        let level = product.div_euclid(i128::from(per_us.max(1)));
        let level = level.clamp(i128::from(lowest(quota)), i128::from(capacity(quota)));
        Self { level: i64::try_from(level).expect("clamped between two of them"), ..self }
    }
}

/// Units of a full bucket.
pub fn capacity(quota: Quota) -> u64 {
    u64::from(quota.burst) * quota.per_micros()
}

/// The level below which no bucket falls: from there to a full one, every distance is exact in an `f64`.
fn lowest(quota: Quota) -> i64 {
    (signed(capacity(quota)) - signed(EXACT - 1)).min(0)
}

fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    const START: Micros = Micros(1_800_000_000_000_000);

    fn quotas() -> impl Strategy<Value = Quota> {
        (1..=50_u32, 1..=20_u64, 1..=20_u32).prop_map(|(requests, per, burst)| Quota {
            requests,
            per: Duration::from_secs(per),
            burst,
            strict: false,
        })
    }

    /// A quota, and pauses of which some are shorter and some longer than a token takes.
    fn traces() -> impl Strategy<Value = (Quota, Vec<u64>)> {
        quotas().prop_flat_map(|quota| {
            let token = quota.per_micros() / u64::from(quota.requests);
            let pause = prop_oneof![4 => 0..=token, 2 => 0..=2 * token, 1 => 0..=30 * token];
            (Just(quota), vec(pause, 1..200))
        })
    }

    /// The times, of these in this order, at which a full bucket gives a token.
    fn admitted(quota: Quota, times: impl IntoIterator<Item = Micros>) -> Vec<Micros> {
        let mut bucket = Bucket::full(quota, START);
        let mut admitted = Vec::new();
        for now in times {
            bucket = bucket.refill(quota, now);
            if let Ok(taken) = bucket.try_take(quota, 1, now) {
                bucket = taken;
                admitted.push(now);
            }
        }
        admitted
    }

    /// Units that `burst + requests * T / per` allows.
    fn allowed(quota: Quota, window_us: u64) -> u64 {
        capacity(quota) + window_us * u64::from(quota.requests)
    }

    proptest! {
        #[test]
        fn window_admits_at_most_burst_and_inflow((quota, pauses) in traces()) {
            let mut now = START;
            let times = pauses.into_iter().map(|pause| { now = Micros(now.0 + pause); now });
            let admitted = admitted(quota, times);
            for (i, first) in admitted.iter().enumerate() {
                for (count, last) in (1..).zip(&admitted[i..]) {
                    prop_assert!(count * quota.per_micros() <= allowed(quota, last.since(*first)));
                }
            }
        }

        #[test]
        fn costs_in_any_window_are_at_most_burst_and_inflow(
            (quota, pauses) in traces(), costs in vec(1..=25_u32, 200),
        ) {
            let (mut now, mut bucket) = (START, Bucket::full(quota, START));
            let mut paid: Vec<(Micros, u64)> = Vec::new();
            for (pause, cost) in pauses.into_iter().zip(costs) {
                now = Micros(now.0 + pause);
                match bucket.try_take(quota, cost, now) {
                    Ok(taken) => {
                        bucket = taken;
                        paid.push((now, cost.into()));
                    }
                    Err(wait) => {
                        prop_assert_eq!(bucket.refill(quota, now).tokens_in_us(quota, cost), wait);
                        let due = Micros(now.0 + wait);
                        prop_assert_eq!(bucket.try_take(quota, cost, due).is_ok(), cost <= quota.burst);
                        prop_assert!(bucket.try_take(quota, cost, Micros(due.0 - 1)).is_err());
                    }
                }
            }
            for (i, (first, _)) in paid.iter().enumerate() {
                let mut sum = 0;
                for (last, cost) in &paid[i..] {
                    sum += cost;
                    prop_assert!(sum * quota.per_micros() <= allowed(quota, last.since(*first)));
                }
            }
        }

        #[test]
        fn strict_quota_admits_its_requests_at_most_in_any_window(
            (quota, pauses) in traces(), burst in 1..=20_u32,
        ) {
            let default = Quota { requests: 2, burst: 1, strict: true, ..Quota::DEFAULT };
            let quota = default.in_force(Some(Quota { burst, ..quota }));
            let mut now = START;
            let times = pauses.into_iter().map(|pause| { now = Micros(now.0 + pause / 4); now });
            let admitted = admitted(quota, times);
            for (i, first) in admitted.iter().enumerate() {
                let within = admitted[i..].iter().take_while(|time| time.since(*first) < quota.per_micros()).count();
                prop_assert!(within <= quota.requests as usize, "{within} of {quota:?}");
            }
        }

        #[test]
        fn refused_requests_do_not_delay_the_next_token(
            quota in quotas(), early in 0.0..1.0_f64, storm in vec(0.0..1.0_f64, 0..100),
        ) {
            let token = quota.per_micros().div_ceil(u64::from(quota.requests));
            let mut bucket = Bucket { level: 0, at: START };
            let at = |share: f64, of: u64| Micros(START.0 + (share * of as f64) as u64);
            let wait = bucket.try_take(quota, 1, at(early, token - 1)).unwrap_err();
            let due = Micros(at(early, token - 1).0 + wait);
            let mut times: Vec<Micros> = storm.into_iter().map(|share| at(share, token - 1)).collect();
            times.sort_unstable();
            for now in times {
                prop_assert!(bucket.try_take(quota, 1, now).is_err());
                bucket = bucket.refill(quota, now);
            }
            prop_assert!(bucket.try_take(quota, 1, Micros(due.0 - 1)).is_err());
            prop_assert!(bucket.try_take(quota, 1, due).is_ok());
        }

        #[test]
        fn stepping_clock_refills_only_by_its_steps_forward(
            quota in quotas(), steps in vec(-20_000_000..20_000_000_i64, 1..200),
        ) {
            let mut now = START;
            let times: Vec<Micros> = steps.iter().map(|step| { now = Micros(now.0.strict_add_signed(*step)); now })
                .collect();
            let forward: u64 = steps.iter().map(|step| u64::try_from(*step).unwrap_or(0)).sum();
            let count = admitted(quota, times).len() as u64;
            prop_assert!(count * quota.per_micros() <= allowed(quota, forward));
        }

        #[test]
        fn readings_out_of_order_refill_nothing((quota, pauses) in traces(), late in vec(0..=REORDERED_US, 200)) {
            let mut now = START;
            let times: Vec<Micros> = pauses.into_iter().zip(late).map(|(pause, late)| {
                // More often than tokens flow in, so that every token too many shows.
                now = Micros(now.0 + pause / 8);
                Micros((now.0 - late).max(START.0))
            }).collect();
            let count = admitted(quota, times).len() as u64;
            prop_assert!(count * quota.per_micros() <= allowed(quota, now.since(START)));
        }

        #[test]
        fn pause_refills_at_most_the_burst((quota, pauses) in traces(), pause in 0..=u64::MAX / 4) {
            let mut now = START;
            let mut bucket = Bucket::full(quota, START);
            for step in pauses {
                now = Micros(now.0 + step);
                bucket = bucket.try_take(quota, 1, now).unwrap_or(bucket);
            }
            now = Micros(now.0 + pause);
            for _ in 0..quota.burst {
                let Ok(taken) = bucket.try_take(quota, 1, now) else { return Ok(()) };
                bucket = taken;
            }
            prop_assert!(bucket.try_take(quota, 1, now).is_err());
        }

        #[test]
        fn many_small_refills_equal_one_large_refill((quota, pauses) in traces(), level in 0.0..1.0_f64) {
            let start = Bucket { level: (capacity(quota) as f64 * level) as i64, at: START };
            let mut now = START;
            let mut bucket = start;
            for pause in pauses {
                now = Micros(now.0 + pause);
                bucket = bucket.refill(quota, now);
            }
            prop_assert_eq!(bucket, start.refill(quota, now));
        }

        #[test]
        fn announced_times_are_exact((quota, level) in (quotas(), 0.0..1.0_f64)) {
            let bucket = Bucket { level: (capacity(quota) as f64 * level) as i64, at: START };
            let after = |us| bucket.refill(quota, Micros(START.0 + us));
            let token = bucket.tokens_in_us(quota, 1);
            let full = bucket.full_in_us(quota);
            prop_assert!(after(token).remaining(quota) >= 1);
            prop_assert!(token == 0 || after(token - 1).remaining(quota) == 0);
            prop_assert_eq!(after(full).level, signed(capacity(quota)));
            prop_assert!(full == 0 || after(full - 1).level < signed(capacity(quota)));
        }

        #[test]
        fn repaid_uses_are_missing_later((quota, level) in (quotas(), 0.0..1.0_f64), uses in 0..100_u64) {
            let bucket = Bucket { level: (capacity(quota) as f64 * level) as i64, at: START };
            let repaid = bucket.repay(quota, uses);
            prop_assert_eq!(repaid.level, bucket.level - signed(uses * quota.per_micros()));
            prop_assert!(repaid.level >= 0 || repaid.remaining(quota) == 0);
            let token = Micros(START.0 + repaid.tokens_in_us(quota, 1));
            prop_assert!(repaid.try_take(quota, 1, token).is_ok());
            prop_assert!(
                repaid.level >= signed(quota.per_micros())
                    || repaid.try_take(quota, 1, Micros(token.0 - 1)).is_err()
            );
            prop_assert!(bucket.charge(quota, uses).level >= 0, "a charge goes no further than to empty");
        }

        #[test]
        fn conversion_keeps_the_tokens((old, new) in (quotas(), quotas()), level in 0.0..1.0_f64) {
            let bucket = Bucket { level: (capacity(old) as f64 * level) as i64, at: START };
            let converted = bucket.convert(old.per_micros(), new);
            prop_assert_eq!(converted.remaining(new), bucket.remaining(old).min(new.burst));
            prop_assert!(converted.level <= signed(capacity(new)));
        }
    }

    #[test]
    fn clock_set_back_neither_refills_nor_freezes() {
        let quota = Quota { requests: 10, per: Duration::from_secs(10), burst: 5, strict: false };
        let empty = Bucket { level: 0, at: START };
        let back = START.before(Duration::from_secs(3600));
        let set_back = empty.refill(quota, back);
        assert_eq!(set_back, Bucket { level: 0, at: back });
        assert!(set_back.try_take(quota, 1, back.after(Duration::from_secs(1))).is_ok());
    }

    #[test]
    fn largest_quota_is_exact() {
        let quota =
            Quota { requests: 1, per: Duration::from_secs(9), burst: 1_000_000_000, strict: false }.validate().unwrap();
        let bucket = Bucket::full(quota, START).refill(quota, Micros(u64::MAX));
        assert_eq!(bucket.remaining(quota), 1_000_000_000);
        assert_eq!(bucket.charge(quota, u64::MAX).level, 0);
        assert_eq!(
            signed(capacity(quota)) - bucket.repay(quota, u64::MAX).level,
            signed(EXACT - 1),
            "exact in a double"
        );
        assert_eq!(Bucket { level: 0, at: Micros(0) }.refill(quota, Micros(u64::MAX)).level, signed(capacity(quota)));
    }
}
