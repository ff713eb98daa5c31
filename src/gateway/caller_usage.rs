//! Facts of an admission that the answer to `serve: usage` has, and the answer itself.

use std::sync::Arc;

use serde::Serialize;

use crate::admission::Route;
use domain::clock::Micros;
use domain::identity::{OrgId, Principal, UserId};
use domain::key::KeyId;
use domain::quota::RateLimitStatus;
use journal::audit::{HourlyActivity, KeyActivity};
use state::Admitted;

const DAY: u64 = 86_400_000_000;

/// Facts of an admission that the answer has.
pub(super) struct CallerUsage {
    pub(super) principal: Arc<Principal>,
    /// Number of the use among those of its credential.
    number: u64,
    rate_limit: RateLimitStatus,
}

impl CallerUsage {
    /// The facts, on a route that needs them.
    pub(super) fn of(route: &Route, admitted: &Admitted) -> Option<Box<Self>> {
        let Admitted { principal, number, rate_limit, .. } = admitted;
        route.serve.map(|_| {
            Box::new(Self { principal: Arc::clone(principal), number: *number, rate_limit: rate_limit.clone() })
        })
    }
}

/// The answer.
#[derive(Debug, Serialize)]
pub(super) struct UsageDocument<'a> {
    key_id: Option<KeyId>,
    user_id: UserId,
    org_id: OrgId,
    /// Admitted uses since the key was created, this one included.
    total: u64,
    hour: Option<Counts>,
    day: Option<Counts>,
    gateway: &'a str,
    limit: LimitFields,
    concurrent: ConcurrencyFields,
    /// Only of a key with a limit of its own.
    #[serde(skip_serializing_if = "Option::is_none")]
    key_concurrent: Option<ConcurrencyFields>,
    /// Only where there is a budget.
    #[serde(skip_serializing_if = "Option::is_none")]
    quota: Option<BudgetFields>,
}

/// Counts of a key's uses, as this gateway recorded them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Counts {
    #[serde(with = "domain::clock::rfc3339")]
    start: Micros,
    requests: u64,
    refusals: u64,
}

/// The bucket of the credential.
#[derive(Debug, Serialize)]
struct LimitFields {
    requests: u32,
    per: u64,
    burst: u32,
    strict: bool,
    remaining: u32,
    reset: u64,
}

/// The budget that the credential spends.
#[derive(Debug, Serialize)]
struct BudgetFields {
    units: u64,
    remaining: u64,
    #[serde(with = "domain::clock::rfc3339")]
    until: Micros,
}

/// A limit of requests in flight.
#[derive(Debug, Serialize)]
struct ConcurrencyFields {
    limit: u32,
    remaining: u32,
}

impl CallerUsage {
    /// The answer, with the counts of the hour and of the day.
    pub(super) fn document<'a>(&self, counts: Option<(Counts, Counts)>, gateway: &'a str) -> UsageDocument<'a> {
        let RateLimitStatus { quota, remaining, full_in_us, concurrent, in_flight, key_slots, .. } = self.rate_limit;
        UsageDocument {
            key_id: self.principal.key_id,
            user_id: self.principal.user_id,
            org_id: self.principal.org_id,
            total: self.number,
            hour: counts.map(|(hour, _)| hour),
            day: counts.map(|(_, day)| day),
            gateway,
            limit: LimitFields {
                requests: quota.requests,
                per: quota.per.as_secs(),
                burst: quota.burst,
                strict: quota.strict,
                remaining,
                reset: full_in_us.div_ceil(1_000_000),
            },
            concurrent: ConcurrencyFields { limit: concurrent, remaining: concurrent.saturating_sub(in_flight) },
            key_concurrent: key_slots
                .map(|slots| ConcurrencyFields { limit: slots.concurrent, remaining: slots.free() }),
            quota: self.rate_limit.budget.as_deref().map(|budget| BudgetFields {
                units: budget.units,
                remaining: budget.remaining(),
                until: budget.end,
            }),
        }
    }
}

/// The counts of the current hour, and of the current day in UTC, whose hours are among those of the activity.
pub(super) fn counts(activity: &KeyActivity, now: Micros) -> (Counts, Counts) {
    let midnight = Micros(now.0 - now.0 % DAY);
    let current = activity.hours.last().map(|hour| hour.start).unwrap_or_default();
    (sum(&activity.hours, current), sum(&activity.hours, midnight))
}

/// The sum of the hours from a time on.
fn sum(hours: &[HourlyActivity], start: Micros) -> Counts {
    let within = hours.iter().filter(|hour| hour.start >= start);
    within.fold(Counts { start, requests: 0, refusals: 0 }, |sum, hour| Counts {
        requests: sum.requests + hour.requests,
        refusals: sum.refusals + hour.refusals,
        ..sum
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use journal::audit::ACTIVITY_HOURS;

    const HOUR: u64 = 3_600_000_000;

    /// The activity at a time, with as many requests in each hour as `requests` says.
    fn activity(now: Micros, requests: [u64; ACTIVITY_HOURS]) -> KeyActivity {
        let first = now.0 / HOUR + 1 - ACTIVITY_HOURS as u64;
        let hours = std::array::from_fn(|n| HourlyActivity {
            start: Micros((first + n as u64) * HOUR),
            requests: requests[n],
            refusals: 2 * requests[n],
        });
        KeyActivity { hours, last: None, last_attempt: None }
    }

    proptest! {
        #[test]
        fn hour_and_day_are_those_of_the_present(
            now in DAY..4_000_000_000_000_000,
            requests in prop::array::uniform24(0..1000_u64),
        ) {
            let now = Micros(now);
            let (hour, day) = counts(&activity(now, requests), now);
            prop_assert!(hour.start <= now && now.0 < hour.start.0 + HOUR);
            prop_assert_eq!((hour.requests, hour.refusals), (requests[23], 2 * requests[23]));
            let hours_of_day = usize::try_from(now.0 % DAY / HOUR).unwrap() + 1;
            let expected: u64 = requests[ACTIVITY_HOURS - hours_of_day..].iter().sum();
            prop_assert_eq!((day.start.0 % DAY, day.requests, day.refusals), (0, expected, 2 * expected));
        }
    }
}
