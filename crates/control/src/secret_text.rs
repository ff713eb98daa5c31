//! Secrets as plain text in JSON, for `#[serde(with = "…")]`: on the way to their owner, or in a ticket of the state.

use serde::{Deserialize as _, Deserializer, Serializer};

use domain::secret::Secret;

pub(crate) fn serialize<S: Serializer>(secret: &Secret, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(secret.expose())
}

pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Secret, D::Error> {
    String::deserialize(deserializer).map(Secret::new)
}
