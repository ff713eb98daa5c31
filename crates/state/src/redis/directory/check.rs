//! Checks of a transaction, as `commit.lua` makes them.

use serde::Serialize;
use serde_json::json;

use crate::redis::record_codec::Version;
use domain::clock::Micros;
use redis_client::MAX_CLOCK_DIFFERENCE;

/// A record of a transaction: its number, from 1.
#[derive(Clone, Copy, Serialize)]
#[serde(transparent)]
pub(crate) struct Record(pub(super) usize);

/// A condition on a record.
#[derive(Clone, Copy)]
pub(crate) enum Check<'a> {
    /// The record exists.
    Present(Record),
    /// The record does not exist.
    Absent(Record),
    /// The field has this value.
    Equal(Record, &'a str, &'a str),
    /// The field does not exist.
    NoField(Record, &'a str),
    /// The field does not exist, or has this value.
    Free(Record, &'a str, &'a str),
    /// The set has fewer members.
    Fewer(Record, u32),
    /// The sorted set has fewer members whose time is not over, or this one.
    FewerScored(Record, u32, &'a str),
    /// The user's bucket of keys to create has a token, by this quota.
    Token(Record, &'a serde_json::Value),
    /// The live part has this version.
    Version(Record, &'a Version),
    /// The key was not used since this time.
    UnusedSince(Record, Micros),
    /// This time is that of the server's clock, to a minute: what rests on it may be ended or accepted.
    Near(Record, Micros),
}

impl Check<'_> {
    /// The check on the wire: its name in `commit.lua`, then its arguments.
    pub(super) fn json(self) -> serde_json::Value {
        match self {
            Self::Present(record) => json!(("present", record)),
            Self::Absent(record) => json!(("absent", record)),
            Self::Equal(record, field, value) => json!(("equal", record, field, value)),
            Self::NoField(record, field) => json!(("no_field", record, field)),
            Self::Free(record, field, value) => json!(("free", record, field, value)),
            Self::Fewer(record, count) => json!(("fewer", record, count)),
            Self::FewerScored(record, count, member) => json!(("fewer_scored", record, count, member)),
            Self::Token(record, quota) => json!(("token", record, quota)),
            Self::Version(record, version) => json!(("version", record, String::from_utf8_lossy(version))),
            Self::UnusedSince(record, since) => json!(("unused_since", record, since.0)),
            Self::Near(record, time) => json!(("near", record, time.0, MAX_CLOCK_DIFFERENCE)),
        }
    }
}
