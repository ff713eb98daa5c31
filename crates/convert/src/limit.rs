//! Rate limits: windows and buckets of other gateways as the token bucket of keygate, where both say the same.
//!
//! `N in each window of T` is `{ requests: N, per: T }`: with fixed windows, both admit up to twice N around the end of
//! a window. Anything else is left, and the configured limits apply.

use std::time::Duration;

use super::consumer::Scope;
use super::field::Field;
use super::table::{Becomes, Record, Rules};
use domain::quota::Quota;

/// Reason for which several limits are left.
pub(crate) const SEVERAL: &str = "there are several limits at once; a key has one bucket";

/// The quota of a limit of a file, and the requests that it counts together; or why there is none.
pub(crate) fn read(rules: &Rules, record: Record, item: &Field<'_>) -> Result<(Quota, Scope), String> {
    let scope = if rules.holds(record, item, Becomes::PerKey) { Scope::Key } else { Scope::Consumer };
    let quota = match record {
        Record::Plugin => read_periods(rules, item),
        Record::Leaky => {
            let rate = rules.get(record, item, Becomes::Rate).and_then(|rate| rate.text()?.parse().ok());
            let burst = rules.number(record, item, Becomes::Burst);
            leaky(rate.ok_or("the limit has no rate")?, burst.ok_or("its burst is no whole number")?)
        }
        _ => read_window(rules, record, item),
    };
    quota.map(|quota| (quota, scope))
}

/// The quota of a plugin of Kong, which has a number for each period.
fn read_periods(rules: &Rules, item: &Field<'_>) -> Result<Quota, String> {
    let mut periods = Vec::new();
    for rule in rules.rows(Record::Plugin) {
        if let Becomes::Period(seconds) = rule.becomes {
            periods.extend(rule.find(item).map(|field| (field, seconds)));
        }
    }
    match &periods[..] {
        [] => Err("the limit has no number".to_owned()),
        [(_, 0)] => Err("a month and a year have no fixed length; a key has a limit in up to 366 days".to_owned()),
        [(field, seconds)] => window(field.number(), Some(Duration::from_secs(*seconds))),
        _ => Err(SEVERAL.to_owned()),
    }
}

/// The quota of a window, or, of Unkey's older API, a bucket.
fn read_window(rules: &Rules, record: Record, item: &Field<'_>) -> Result<Quota, String> {
    let requests = rules.number(record, item, Becomes::Requests);
    if let Some(interval) = rules.number(record, item, Becomes::Interval) {
        let rate = rules.number(record, item, Becomes::Refill).ok_or("the limit has no refillRate")?;
        return bucket(rate, Duration::from_millis(interval), requests.ok_or("the limit is no whole number")?);
    }
    let seconds = rules.number(record, item, Becomes::Seconds).map(Duration::from_secs);
    window(requests, seconds.or_else(|| rules.number(record, item, Becomes::Millis).map(Duration::from_millis)))
}

/// The quota of a window; or why there is none.
fn window(requests: Option<u32>, per: Option<Duration>) -> Result<Quota, String> {
    let requests = requests.ok_or("the limit is no whole number")?;
    let per = per.ok_or("its window is no whole number of seconds")?;
    bucket(requests, per, requests)
}

/// The quota of a bucket; or why there is none.
fn bucket(requests: u32, per: Duration, burst: u32) -> Result<Quota, String> {
    let quota = Quota { requests, per, burst, strict: false };
    quota.validate().map_err(|error| format!("the limit cannot be expressed: {error}"))
}

/// The quota of a leaky bucket that lets `burst` requests more than `rate` per second pass at once; or why there is
/// none.
fn leaky(rate: f64, burst: u32) -> Result<Quota, String> {
    // The first request is none of the burst.
    let burst = burst.saturating_add(1);
    for seconds in [1_u32, 60, 3600, 86400] {
        // Written out and read again: a fraction is no `u32`.
        if let Ok(requests) = (rate * f64::from(seconds)).to_string().parse() {
            return bucket(requests, Duration::from_secs(seconds.into()), burst);
        }
    }
    Err("its rate is no whole number of requests in a second, minute, hour or day".to_owned())
}

#[cfg(test)]
mod tests {
    use platform::settings::{Part, Treatment, read_lists};

    use super::*;
    use crate::options::Dialect;
    use crate::report::Report;

    /// The limit of a configuration of Kong's `rate-limiting`.
    fn limit(config: &str) -> Result<(u32, u64, Scope), String> {
        let mut read = None;
        let text = format!("- {{ name: rate-limiting, config: {{ {config} }} }}\n");
        let parsed = read_lists(
            &text,
            |_| Treatment::Items,
            |part| {
                let Part::Item { node, .. } = part else { return };
                let (rules, plugin) = (Rules::of(Dialect::Kong), Field::item("", 0, &node));
                let mut report = Report::default();
                let is_counted = rules.check(Record::Plugin, &plugin, &mut report);
                let limit = if is_counted { super::read(&rules, Record::Plugin, &plugin) } else { Err(String::new()) };
                let limit = limit.map_err(|reason| reason + &report.lines("").concat());
                read = Some(limit.map(|(quota, scope)| (quota.requests, quota.per.as_secs(), scope)));
            },
        );
        parsed.unwrap();
        read.unwrap()
    }

    #[test]
    fn limit_of_one_period_by_consumer_or_credential_is_read() {
        for (config, expected) in [
            ("second: 5", (5, 1, Scope::Consumer)),
            ("minute: 5.0, hour: null, limit_by: consumer", (5, 60, Scope::Consumer)),
            ("hour: 10000, limit_by: credential, policy: redis", (10_000, 3600, Scope::Key)),
            ("day: 1", (1, 86400, Scope::Consumer)),
        ] {
            assert_eq!(limit(config), Ok(expected), "{config}");
        }
        for (config, reason) in [
            ("second: 5, hour: 10000", "several limits"),
            ("month: 5", "no fixed length"),
            ("policy: local", "no number"),
            ("minute: 0.5", "no whole number"),
            ("minute: 5, limit_by: ip", "not counted by consumer"),
        ] {
            assert!(limit(config).is_err_and(|found| found.contains(reason)), "{config}");
        }
    }

    #[test]
    fn window_is_a_bucket_of_its_size() {
        let quota = window(Some(5), Some(Duration::from_secs(60))).unwrap();
        assert_eq!((quota.requests, quota.per.as_secs(), quota.burst), (5, 60, 5));
        assert!(window(Some(0), Some(Duration::from_secs(60))).unwrap_err().contains("requests must be"));
        assert!(window(Some(5), Some(Duration::from_millis(1500))).unwrap_err().contains("whole seconds"));
        assert!(window(None, Some(Duration::from_secs(60))).is_err() && window(Some(5), None).is_err());
        assert!(window(Some(1_000_000_000), Some(Duration::from_secs(86400))).unwrap_err().contains("too large"));
    }

    #[test]
    fn leaky_bucket_of_a_fraction_is_one_of_a_longer_time() {
        let parts = |quota: Quota| (quota.requests, quota.per.as_secs(), quota.burst);
        assert_eq!(parts(leaky(10.0, 5).unwrap()), (10, 1, 6));
        assert_eq!(parts(leaky(0.5, 0).unwrap()), (30, 60, 1));
        assert_eq!(parts(leaky(1.0 / 3.0, 1).unwrap()), (20, 60, 2));
        assert!(leaky(0.0, 1).is_err() && leaky(f64::NAN, 1).is_err() && leaky(1e18, 1).is_err());
    }
}
