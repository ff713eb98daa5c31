//! A point in time, and its text form.

use std::fmt;
use std::str::FromStr;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

/// A point in time, in whole microseconds since the Unix epoch, UTC.
///
/// Exact in an `f64` until the year 2255: Lua scripts compute in `f64`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Micros(pub u64);

impl Micros {
    /// The time `later` after this one, saturating.
    pub fn after(self, later: Duration) -> Self {
        Self(self.0.saturating_add(u64::try_from(later.as_micros()).unwrap_or(u64::MAX)))
    }

    /// The time `earlier` before this one, saturating at the epoch.
    pub fn before(self, earlier: Duration) -> Self {
        Self(self.0.saturating_sub(u64::try_from(earlier.as_micros()).unwrap_or(u64::MAX)))
    }

    /// The time from `earlier` to this one, in microseconds; zero when `earlier` is later.
    pub fn since(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0)
    }

    /// Reads the wall clock. Prefer [`crate::clock::now`] where two readings are compared.
    pub fn wall() -> Self {
        let elapsed = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self(u64::try_from(elapsed.as_micros()).unwrap_or(u64::MAX))
    }
}

impl fmt::Display for Micros {
    /// RFC 3339 in UTC with six digits of fraction.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let micros = i64::try_from(self.0).unwrap_or(i64::MAX).min(jiff::Timestamp::MAX.as_microsecond());
        let time = jiff::Timestamp::from_microsecond(micros).map_err(|_| fmt::Error)?;
        write!(f, "{time:.6}")
    }
}

/// Error: the text is not a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected a time such as 2026-11-20T21:08:00Z")]
pub struct InvalidTime;

impl FromStr for Micros {
    type Err = InvalidTime;

    /// Parses RFC 3339. A time before the epoch is an error: this system records none.
    fn from_str(text: &str) -> Result<Self, InvalidTime> {
        let time = text.parse::<jiff::Timestamp>().map_err(|_| InvalidTime)?;
        u64::try_from(time.as_microsecond()).map(Self).map_err(|_| InvalidTime)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_is_displayed_as_rfc3339_with_microseconds() {
        assert_eq!(Micros(1_700_000_000_000_042).to_string(), "2023-11-14T22:13:20.000042Z");
        assert_eq!(Micros(0).to_string(), "1970-01-01T00:00:00.000000Z");
    }
}
