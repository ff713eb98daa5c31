//! A point in time, as a page shows it.

use super::numbers::duration;
use crate::clock::Micros;

/// Below this, in microseconds, a time is now: nobody reads faster.
const NOW_US: u64 = 5_000_000;

/// A point in time, ready to be shown. All of it is UTC; where scripts run, the reader's own zone replaces it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Timestamp {
    /// For programs: RFC 3339 to the second.
    pub iso: String,
    /// To the second: `21 Nov 2026, 18:24:09 UTC`.
    pub exact: String,
    /// The day alone: `21 Nov 2026`.
    pub day: String,
    /// From now: `3 minutes ago`, `in 2 hours`, `just now`.
    pub relative: String,
}

impl Timestamp {
    /// `time`, seen from `now`.
    pub fn of(time: Micros, now: Micros) -> Self {
        let seconds = i64::try_from(time.0 / 1_000_000).unwrap_or(i64::MAX);
        let at = jiff::Timestamp::from_second(seconds).unwrap_or(jiff::Timestamp::MAX);
        Self {
            iso: at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
            exact: at.strftime("%-d %b %Y, %H:%M:%S UTC").to_string(),
            day: at.strftime("%-d %b %Y").to_string(),
            relative: relative(time, now),
        }
    }
}

fn relative(time: Micros, now: Micros) -> String {
    let (past, future) = (now.since(time), time.since(now));
    if past.max(future) < NOW_US {
        "just now".into()
    } else if future > 0 {
        format!("in {}", duration(future))
    } else {
        format!("{} ago", duration(past))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Micros = Micros(1_700_000_000_000_042);

    #[test]
    fn a_time_is_shown_exactly() {
        let when = Timestamp::of(NOW, NOW);
        assert_eq!(when.iso, "2023-11-14T22:13:20Z");
        assert_eq!(when.exact, "14 Nov 2023, 22:13:20 UTC");
        assert_eq!(when.day, "14 Nov 2023");
        assert_eq!(Timestamp::of(Micros(0), NOW).exact, "1 Jan 1970, 00:00:00 UTC");
        assert!(Timestamp::of(Micros(u64::MAX), NOW).iso.starts_with("9999-"));
    }

    #[test]
    fn a_time_is_told_from_now() {
        let second = 1_000_000;
        for (later, text) in [(4, "just now"), (5, "in 5 seconds"), (420, "in 7 minutes"), (7_200, "in 2 hours")] {
            assert_eq!(relative(Micros(NOW.0 + later * second), NOW), text);
        }
        for (earlier, text) in [(0, "just now"), (4, "just now"), (180, "3 minutes ago"), (86_400, "1 day ago")] {
            assert_eq!(relative(Micros(NOW.0 - earlier * second), NOW), text);
        }
    }
}
