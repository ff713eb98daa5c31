//! Times as RFC 3339 text in JSON, for `#[serde(with = "clock::rfc3339")]`: UTC, six digits of fraction.
//!
//! [`Micros`] itself serializes as an integer, as the state keeps it; JSON for people and programs has text.

use serde::de::Error as _;
use serde::{Deserialize as _, Deserializer, Serializer};

use super::Micros;

/// Writes a time as text.
///
/// # Errors
/// Those of the serializer.
pub fn serialize<S: Serializer>(time: &Micros, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(time)
}

/// Reads a time from text.
///
/// # Errors
/// When the text is not an RFC 3339 time after the Unix epoch.
pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Micros, D::Error> {
    String::deserialize(deserializer)?.parse().map_err(D::Error::custom)
}

/// The same for a time that may be absent, which is `null`.
pub mod option {
    use serde::de::Error as _;
    use serde::{Deserialize as _, Deserializer, Serializer};

    use super::Micros;

    /// Writes a time as text, or `null`.
    ///
    /// # Errors
    /// Those of the serializer.
    #[allow(clippy::ref_option, reason = "serde's signature")]
    pub fn serialize<S: Serializer>(time: &Option<Micros>, serializer: S) -> Result<S::Ok, S::Error> {
        match time {
            Some(time) => serializer.collect_str(time),
            None => serializer.serialize_none(),
        }
    }

    /// Reads a time from text, or `null`.
    ///
    /// # Errors
    /// When the text is not an RFC 3339 time after the Unix epoch.
    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Micros>, D::Error> {
        let text = Option::<String>::deserialize(deserializer)?;
        text.map(|text| text.parse().map_err(D::Error::custom)).transpose()
    }
}

#[cfg(test)]
mod tests {
    use serde::{Deserialize, Serialize};

    use super::*;

    #[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
    struct Times {
        #[serde(with = "super")]
        created: Micros,
        #[serde(with = "super::option")]
        revoked: Option<Micros>,
    }

    #[test]
    fn times_are_text_and_come_back_as_they_were() {
        for (revoked, json) in [(None, "null"), (Some(Micros(42)), "\"1970-01-01T00:00:00.000042Z\"")] {
            let times = Times { created: Micros(1_700_000_000_000_042), revoked };
            let text = format!("{{\"created\":\"2023-11-14T22:13:20.000042Z\",\"revoked\":{json}}}");
            assert_eq!(serde_json::to_string(&times).unwrap(), text);
            assert_eq!(serde_json::from_str::<Times>(&text).unwrap(), times);
        }
        assert!(serde_json::from_str::<Times>("{\"created\":\"yesterday\",\"revoked\":null}").is_err());
    }
}
