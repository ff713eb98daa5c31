//! Billing periods: days and months in UTC.

use std::fmt;

use jiff::civil::Date;
use jiff::tz::TimeZone;
use jiff::{Timestamp, ToSpan as _};
use serde::{Deserialize, Serialize};

use domain::clock::Micros;

/// Microseconds of a day. Days in UTC have no other length: the clock has no leap seconds.
const DAY: u64 = 86_400_000_000;

/// Length of the periods by which usage is added up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BillingPeriod {
    /// A day, from midnight UTC.
    Day,
    /// A calendar month, from midnight UTC of its first day.
    Month,
}

/// One billing period: the times from `start` on and before `end`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PeriodSpan {
    /// The first time within the period.
    pub start: Micros,
    /// The first time after the period.
    pub end: Micros,
}

impl BillingPeriod {
    /// The period that contains a time.
    pub fn containing(self, time: Micros) -> PeriodSpan {
        match self {
            Self::Day => {
                let start = time.0 - time.0 % DAY;
                PeriodSpan { start: Micros(start), end: Micros(start.saturating_add(DAY)) }
            }
            Self::Month => {
                let first = date(time).first_of_month();
                let next = first.checked_add(1.month()).unwrap_or(Date::MAX);
                PeriodSpan { start: midnight(first), end: midnight(next) }
            }
        }
    }

    /// The name of the period that begins at a time: `2026-11-22`, or `2026-11`.
    pub fn label(self, start: Micros) -> String {
        let date = date(start);
        match self {
            Self::Day => date.to_string(),
            Self::Month => format!("{:04}-{:02}", date.year(), date.month()),
        }
    }

    /// The name in options and output.
    pub fn name(self) -> &'static str {
        match self {
            Self::Day => "day",
            Self::Month => "month",
        }
    }
}

impl PeriodSpan {
    /// True for a time within the period.
    pub fn contains(self, time: Micros) -> bool {
        self.start <= time && time < self.end
    }
}

impl fmt::Display for BillingPeriod {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The day that contains a time; the last one that a calendar has for times after it.
fn date(time: Micros) -> Date {
    let time = i64::try_from(time.0).ok().and_then(|micros| Timestamp::from_microsecond(micros).ok());
    time.map_or(Date::MAX, |time| time.to_zoned(TimeZone::UTC).date())
}

fn midnight(date: Date) -> Micros {
    let time = date.to_zoned(TimeZone::UTC).map(|time| time.timestamp().as_microsecond());
    Micros(time.ok().and_then(|micros| u64::try_from(micros).ok()).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn at(text: &str) -> Micros {
        Micros(u64::try_from(text.parse::<Timestamp>().unwrap().as_microsecond()).unwrap())
    }

    #[test]
    fn periods_begin_at_midnight_utc() {
        let last = at("2028-02-29T23:59:59.999999Z");
        let day = BillingPeriod::Day.containing(last);
        assert_eq!((day.start, day.end), (at("2028-02-29T00:00:00Z"), at("2028-03-01T00:00:00Z")));
        let month = BillingPeriod::Month.containing(last);
        assert_eq!((month.start, month.end), (at("2028-02-01T00:00:00Z"), at("2028-03-01T00:00:00Z")));
        assert_eq!(BillingPeriod::Month.containing(at("2026-12-31T23:00:00Z")).end, at("2027-01-01T00:00:00Z"));
        assert_eq!(BillingPeriod::Day.label(day.start), "2028-02-29");
        assert_eq!(BillingPeriod::Month.label(month.start), "2028-02");
    }

    proptest! {
        #[test]
        fn each_time_is_in_exactly_one_period(time in 0..253_000_000_000_000_000_u64) {
            for period in [BillingPeriod::Day, BillingPeriod::Month] {
                let span = period.containing(Micros(time));
                prop_assert!(span.contains(Micros(time)));
                prop_assert_eq!(period.containing(span.start), span);
                prop_assert_eq!(period.containing(span.end).start, span.end);
                prop_assert_eq!(period.containing(Micros(span.end.0 - 1)), span);
            }
        }

        #[test]
        fn no_time_is_too_late_for_a_period(time: u64) {
            prop_assert!(!BillingPeriod::Month.label(Micros(time)).is_empty());
            BillingPeriod::Month.containing(Micros(time));
            BillingPeriod::Day.containing(Micros(time));
        }
    }
}
