//! Parser of an upstream's `Retry-After` on a 503 (RFC 9110, section 10.2.3), and the pause that it means for the
//! endpoint. That of the gateway's own refusals is set in `gateway/rate_limit.rs` (exceeded limits) and
//! `gateway/rejection.rs` (others).

use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::time::Duration;

use http::HeaderMap;
use http::header::RETRY_AFTER;

use domain::clock::{Micros, http_date};

/// Longest pause: what an endpoint says of a far time may change sooner.
const LONGEST: Duration = Duration::from_secs(30);

/// Pause of an endpoint: the time until which it has asked for no requests. It is avoided until then, and gets no
/// retries.
///
/// - Two responses in a row must ask for it: one response, which one client may have caused, pauses nothing for the
///   others.
/// - It is a preference. [`super::selection`] says when an endpoint has requests in spite of it.
#[derive(Debug, Default)]
pub(crate) struct Pause {
    /// End, by the steady clock.
    until: AtomicU64,
    /// True if the last response asked for a pause.
    is_asked: AtomicBool,
}

impl Pause {
    /// Notes a response that asks for a pause. Returns whether the one before it asked as well.
    pub(crate) fn ask(&self) -> bool {
        self.is_asked.swap(true, Relaxed)
    }

    /// Notes a response that does not ask for a pause. One that has begun goes on.
    pub(crate) fn interrupt(&self) {
        // Read first: a write would take the cache line from the other workers at each request.
        if self.is_asked.load(Relaxed) {
            self.is_asked.store(false, Relaxed);
        }
    }

    /// Begins a pause, or prolongs it.
    pub(crate) fn begin(&self, duration: Duration, now: Micros) {
        self.until.fetch_max(now.after(duration).0, Relaxed);
    }

    /// Returns whether the pause lasts.
    pub(crate) fn lasts(&self, now: Micros) -> bool {
        self.until.load(Relaxed) > now.0
    }

    /// Time that is left; none when the endpoint is not paused.
    pub(crate) fn rest(&self, now: Micros) -> Option<Duration> {
        let rest = self.until.load(Relaxed).saturating_sub(now.0);
        (rest > 0).then(|| Duration::from_micros(rest))
    }
}

/// Time from now that `Retry-After` asks for, 30 seconds at most; none when the field is absent, invalid or in the
/// past. `wall` is the time of the wall clock.
pub(crate) fn parse_retry_after(headers: &HeaderMap, wall: Micros) -> Option<Duration> {
    let text = headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let asked = if is_number {
        // More digits than fit are a long time.
        Duration::from_secs(text.parse().unwrap_or(u64::MAX))
    } else {
        Duration::from_micros(http_date::parse(text)?.since(wall))
    };
    (!asked.is_zero()).then_some(asked.min(LONGEST))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 1994-11-06T08:49:37Z, the example of RFC 9110, section 5.6.7.
    const EXAMPLE: u64 = 784_111_777;

    fn parsed(text: &str, seconds_before: u64) -> Option<Duration> {
        let headers = HeaderMap::from_iter([(RETRY_AFTER, text.parse().unwrap())]);
        parse_retry_after(&headers, Micros((EXAMPLE - seconds_before) * 1_000_000))
    }

    #[test]
    fn seconds_and_dates_are_read() {
        let seconds = |seconds| Some(Duration::from_secs(seconds));
        assert_eq!(parsed("7", 0), seconds(7));
        assert_eq!(parsed(" 007 ", 0), seconds(7));
        for date in ["Sun, 06 Nov 1994 08:49:37 GMT", "Sunday, 06-Nov-94 08:49:37 GMT", "Sun Nov  6 08:49:37 1994"] {
            assert_eq!(parsed(date, 12), seconds(12), "{date}");
            assert_eq!(parsed(date, 3600), seconds(30), "{date}");
            assert_eq!((parsed(date, 0), parsed(date, 0)), (None, None), "{date} is no future");
        }
        for long in ["31", "86400", "99999999999999999999999"] {
            assert_eq!(parsed(long, 0), seconds(30), "{long}");
        }
        for none in ["0", "", "-1", "1.5", "soon", "7 s", "+7"] {
            assert_eq!(parsed(none, 0), None, "{none}");
        }
        assert_eq!(parse_retry_after(&HeaderMap::new(), Micros(0)), None);
    }

    #[test]
    fn pause_ends_at_its_latest_time() {
        let pause = Pause::default();
        let now = Micros(1_000_000);
        assert!(!pause.lasts(now));
        pause.begin(Duration::from_secs(5), now);
        pause.begin(Duration::from_secs(2), now);
        assert!(pause.lasts(now.after(Duration::from_millis(4999))));
        assert!(!pause.lasts(now.after(Duration::from_secs(5))));
        assert_eq!((pause.rest(now), pause.rest(Micros(6_000_000))), (Some(Duration::from_secs(5)), None));
    }

    #[test]
    fn pause_is_asked_for_twice_in_a_row() {
        let pause = Pause::default();
        assert!(!pause.ask());
        pause.interrupt();
        assert!(!pause.ask(), "another response came between them");
        assert!(pause.ask() && pause.ask());
    }
}
