//! Expiry of a key as people write it: a duration from now, a date, or a time.

use jiff::civil::Date;
use jiff::tz::TimeZone;
use serde::{Deserialize, Deserializer, Serialize};

use super::policy_text::seconds;
use domain::clock::{self, Micros};
use platform::settings::parse_duration;

/// Characters of a date, such as `2027-01-31`: a longer text has a time as well.
const DATE: usize = 10;
/// Times after this one are not exact on Redis, whose scripts compute with `f64`: in the year 2255.
const LATEST: Micros = Micros(1 << 53);

/// Error: a text is no expiry of a key.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "the texts say what is wrong")]
pub enum InvalidExpiry {
    #[error(
        "is no expiry; give a duration such as 90d, a date such as 2027-01-31 (the key expires at 00:00 UTC of that \
         day), or a time such as 2027-01-31T18:00:00Z"
    )]
    Syntax,
    #[error(
        "is a duration, which would end later each time that the file is applied; give a date such as 2027-01-31 (the \
         key expires at 00:00 UTC of that day), or a time such as 2027-01-31T18:00:00Z"
    )]
    Duration,
    #[error("{} has passed; give a later time, or refuse the key at once with `keygate key disable`", seconds(.0))]
    Passed(Micros),
    #[error("is after the year 2254; leave it out for a key that does not expire")]
    TooLate,
}

/// Expiry in a file: a date or a time, since a file means the same whenever it is applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct FixedExpiry(#[serde(with = "clock::rfc3339")] pub Micros);

/// Parses the expiry of a flag, which is in the future.
pub fn parse_expiry(text: &str) -> Result<Micros, InvalidExpiry> {
    let now = clock::now();
    let expires = match parse_duration(text) {
        Ok(duration) => bounded(now.after(duration))?,
        Err(_) => parse_time(text)?,
    };
    if expires > now { Ok(expires) } else { Err(InvalidExpiry::Passed(expires)) }
}

/// Parses a date, which stands for its begin in UTC, or a time of RFC 3339.
fn parse_time(text: &str) -> Result<Micros, InvalidExpiry> {
    if text.len() != DATE {
        return bounded(text.parse().map_err(|_| InvalidExpiry::Syntax)?);
    }
    let begin = text.parse::<Date>().and_then(|date| date.to_zoned(TimeZone::UTC));
    let micros = begin.ok().and_then(|begin| u64::try_from(begin.timestamp().as_microsecond()).ok());
    bounded(Micros(micros.ok_or(InvalidExpiry::Syntax)?))
}

fn bounded(time: Micros) -> Result<Micros, InvalidExpiry> {
    if time <= LATEST { Ok(time) } else { Err(InvalidExpiry::TooLate) }
}

impl<'de> Deserialize<'de> for FixedExpiry {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let parsed = if parse_duration(&text).is_ok() { Err(InvalidExpiry::Duration) } else { parse_time(&text) };
        parsed.map(Self).map_err(|error| serde::de::Error::custom(format_args!("`{text}` {error}")))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn date_is_its_begin_in_utc() {
        let day = Micros(1_801_353_600_000_000);
        assert_eq!(day.to_string(), "2027-01-31T00:00:00.000000Z");
        for text in ["2027-01-31", "2027-01-31T00:00:00Z", "2027-01-31T02:00:00+02:00"] {
            assert_eq!(parse_expiry(text), Ok(day), "{text}");
        }
        let now = clock::now();
        let expires = parse_expiry("90d").unwrap();
        assert!(expires.since(now) - 90 * 86_400_000_000 < Duration::from_secs(60).as_micros() as u64);
        assert!(parse_expiry("1h30m").is_ok());
    }

    #[test]
    fn each_error_says_what_is_wrong() {
        for text in ["", "90", "tomorrow", "2027-02-30", "2027-01-31T18:00:00", "31.01.2027", "-1d", "2027-1-31"] {
            assert_eq!(parse_expiry(text), Err(InvalidExpiry::Syntax), "{text}");
        }
        for text in ["2020-01-01", "2020-01-01T00:00:00Z"] {
            let error = parse_expiry(text).unwrap_err().to_string();
            assert!(error.starts_with("2020-01-01T00:00:00Z has passed; give a later time"), "{error}");
        }
        assert!(matches!(parse_expiry("0s"), Err(InvalidExpiry::Passed(_))));
        for text in ["2256-01-01", "100000d", "213503982d", "9990-12-31T00:00:00Z"] {
            assert_eq!(parse_expiry(text), Err(InvalidExpiry::TooLate), "{text}");
        }
    }

    #[test]
    fn file_has_no_durations() {
        let read = |text: &str| serde_json::from_value::<FixedExpiry>(text.into()).map_err(|error| error.to_string());
        assert_eq!(read("2020-01-01"), Ok(FixedExpiry(Micros(1_577_836_800_000_000))), "a file may be older");
        assert!(read("90d").unwrap_err().contains("`90d` is a duration, which would end later each time"));
        assert!(read("soon").unwrap_err().contains("`soon` is no expiry"));
    }
}
