//! Rate limits: windows and buckets of other gateways as the token bucket of keygate, where both say the same.
//!
//! `N in each window of T` is `{ requests: N, per: T }`: with fixed windows, both admit up to twice N around the end of
//! a window. Anything else is left, and the configured limits apply.

use std::time::Duration;

use domain::quota::Quota;

/// The quota of a window; or why there is none.
pub(super) fn window(requests: Option<u32>, per: Option<Duration>) -> Result<Quota, String> {
    let requests = requests.ok_or("the limit is no whole number")?;
    let per = per.ok_or("its window is no whole number of seconds")?;
    bucket(requests, per, requests)
}

/// The quota of a bucket; or why there is none.
pub(super) fn bucket(requests: u32, per: Duration, burst: u32) -> Result<Quota, String> {
    let quota = Quota { requests, per, burst, strict: false };
    quota.validate().map_err(|error| format!("the limit cannot be expressed: {error}"))
}

/// The quota of a leaky bucket that lets `burst` requests more than `rate` per second pass at once; or why there is
/// none.
pub(super) fn leaky(rate: f64, burst: u32) -> Result<Quota, String> {
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
    use super::*;

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
