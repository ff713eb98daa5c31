//! Durations as text in JSON, for `#[serde(with = "…")]`: whole numbers with units, such as `1h30m`.

use std::time::Duration;

use serde::{Deserialize as _, Deserializer, Serializer};

use platform::settings::{WithUnit, parse_duration};

/// Writes a duration as text.
///
/// # Errors
/// Those of the serializer.
pub fn serialize<S: Serializer>(duration: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(&WithUnit::Duration(*duration))
}

/// Reads a duration from text.
///
/// # Errors
/// The text is not a duration.
pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
    parse(&String::deserialize(deserializer)?)
}

fn parse<E: serde::de::Error>(text: &str) -> Result<Duration, E> {
    parse_duration(text).map_err(|error| E::custom(format!("`{text}` {error}")))
}

/// The same for a duration that may be absent, which is `null`.
pub mod option {
    use super::{Deserializer, Duration, Serializer, WithUnit};
    use serde::Deserialize as _;

    /// Writes a duration as text, or `null`.
    ///
    /// # Errors
    /// Those of the serializer.
    #[allow(clippy::ref_option, reason = "serde's signature")]
    pub fn serialize<S: Serializer>(duration: &Option<Duration>, serializer: S) -> Result<S::Ok, S::Error> {
        match duration {
            Some(duration) => serializer.collect_str(&WithUnit::Duration(*duration)),
            None => serializer.serialize_none(),
        }
    }

    /// Reads a duration from text, or none from `null`.
    ///
    /// # Errors
    /// The text is not a duration.
    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Duration>, D::Error> {
        let text = Option::<String>::deserialize(deserializer)?;
        text.map(|text| super::parse(&text)).transpose()
    }
}
