//! Fields that tell `null` from an absent one, for `#[serde(with = "…")]` with a default: `None` is absent, and
//! `Some(None)` is `null`.

use serde::{Deserialize, Deserializer};

/// Reads a field that is present.
///
/// # Errors
/// The value is neither `null` nor one of the type.
pub fn deserialize<'de, T: Deserialize<'de>, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<Option<T>>, D::Error> {
    Option::<T>::deserialize(deserializer).map(Some)
}

/// Reads a field that is present, of which `null` is no value.
///
/// # Errors
/// The value is not one of the type.
pub fn value<'de, T: Deserialize<'de>, D: Deserializer<'de>>(deserializer: D) -> Result<Option<T>, D::Error> {
    T::deserialize(deserializer).map(Some)
}

/// The same for a duration, which is a text such as `90d`.
pub(super) mod duration {
    use std::time::Duration;

    use serde::{Deserializer, Serializer};

    use crate::management::duration_text::option;

    #[allow(clippy::ref_option, clippy::option_option, reason = "serde's signature")]
    pub(crate) fn serialize<S: Serializer>(
        duration: &Option<Option<Duration>>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        option::serialize(&duration.flatten(), serializer)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<Option<Duration>>, D::Error> {
        option::deserialize(deserializer).map(Some)
    }
}

/// The same for a time, as RFC 3339 has it.
pub(super) mod time {
    use domain::clock::Micros;
    use domain::clock::rfc3339::option;
    use serde::{Deserializer, Serializer};

    #[allow(clippy::ref_option, clippy::option_option, reason = "serde's signature")]
    pub(crate) fn serialize<S: Serializer>(time: &Option<Option<Micros>>, serializer: S) -> Result<S::Ok, S::Error> {
        option::serialize(&time.flatten(), serializer)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Option<Micros>>, D::Error> {
        option::deserialize(deserializer).map(Some)
    }
}
