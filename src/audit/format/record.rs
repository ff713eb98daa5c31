//! The audit record (what auditors read) and the events it is joined from (what the journal holds).

use std::fmt;
use std::net::IpAddr;

use serde::de::{self, Unexpected, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use uuid::Uuid;

use crate::clock::Micros;
use crate::identity::{AuthMethod, OrgId, UserId};
use crate::key::KeyId;
use crate::refusal::Refusal;

/// The beginning of a use, borrowed from the request: what the *use* event says.
#[derive(Clone, Debug)]
pub struct Use<'a> {
    /// UUIDv7, equal to `X-Request-Id`.
    pub id: Uuid,
    /// When the request was decided.
    pub time: Micros,
    /// The number of this use of the key, for the replay at start; none when nothing was taken.
    pub number: Option<u64>,
    /// The key; none for a session, for the admin socket without one, and for unknown keys.
    pub key_id: Option<KeyId>,
    /// The user.
    pub user_id: Option<UserId>,
    /// The organization.
    pub org_id: Option<OrgId>,
    /// How the caller proved who it is.
    pub auth_method: AuthMethod,
    /// The client's address, by the trusted-proxy rule; none for the admin socket.
    pub ip: Option<IpAddr>,
    /// The `User-Agent` as received; capped and escaped when it is written.
    pub user_agent: Option<&'a [u8]>,
    /// The route's name, else `METHOD /path`.
    pub action: &'a str,
    /// The method.
    pub method: &'a str,
    /// The path as received, with the query string only where the route asks for it; capped and escaped when written.
    pub path: &'a str,
    /// Admitted without the shared state, against this gateway's own share of the limits.
    pub provisional: bool,
}

/// How a use ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// Still going on; only a reader says so, it is never written.
    InProgress,
    /// The upstream's response went out whole.
    Completed,
    /// Refused, by the gateway itself, before anything went to the upstream. The table of refusals has the name in the
    /// record. [`Refusal::Unknown`] stands for all keys that do not exist (recorded at a bounded rate).
    Refused(Refusal),
    /// The upstream could not be reached, answered badly, too slowly, or broke off.
    UpstreamError,
    /// The client sent a body too large, too slowly or malformed.
    ClientError,
    /// The gateway failed in the middle of it.
    InternalError,
    /// The client went away, or the gateway died.
    Aborted,
}

impl Outcome {
    /// Outcomes that are no refusal.
    const OTHERS: [Self; 6] =
        [Self::InProgress, Self::Completed, Self::UpstreamError, Self::InternalError, Self::ClientError, Self::Aborted];

    /// All outcomes that a record can have.
    pub fn all() -> impl Iterator<Item = Self> {
        let has_own = |refusal: &Refusal| Self::of_refusal(*refusal) == Some(Self::Refused(*refusal));
        let refused = Refusal::ALL.iter().copied().filter(has_own).map(Self::Refused);
        let (succeeded, failed) = Self::OTHERS.split_at(2);
        succeeded.iter().copied().chain(refused).chain(failed.iter().copied())
    }

    /// Outcome of a refused request; none when such requests are not recorded.
    pub fn of_refusal(refusal: Refusal) -> Option<Self> {
        Self::from_name(refusal.row().outcome?)
    }

    /// Outcome with this name in records.
    pub fn from_name(name: &str) -> Option<Self> {
        let other = Self::OTHERS.into_iter().find(|other| other.name() == name);
        // The first of the refusals that share an outcome stands for all of them.
        let refusal = || Refusal::ALL.iter().copied().find(|refusal| refusal.row().outcome == Some(name));
        other.or_else(|| refusal().map(Self::Refused))
    }

    /// Name in records.
    pub fn name(self) -> &'static str {
        match self {
            Self::Refused(refusal) => refusal.row().outcome.expect("of_refusal gives only refusals that are recorded"),
            Self::InProgress => "in_progress",
            Self::Completed => "completed",
            Self::UpstreamError => "upstream_error",
            Self::ClientError => "client_error",
            Self::InternalError => "internal_error",
            Self::Aborted => "aborted",
        }
    }

    /// Whether a known key or session was refused: its request went nowhere.
    pub fn is_refusal(self) -> bool {
        matches!(self, Self::Refused(refusal) if refusal != Refusal::Unknown)
    }
}

impl Serialize for Outcome {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

impl<'de> Deserialize<'de> for Outcome {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Name;

        impl Visitor<'_> for Name {
            type Value = Outcome;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("the name of an outcome")
            }

            fn visit_str<E: de::Error>(self, name: &str) -> Result<Outcome, E> {
                Outcome::from_name(name).ok_or_else(|| E::invalid_value(Unexpected::Str(name), &self))
            }
        }

        deserializer.deserialize_str(Name)
    }
}

/// The end of a use: what the *outcome* event says.
#[derive(Clone, Copy, Debug)]
pub struct UseEnd {
    /// How it ended.
    pub outcome: Outcome,
    /// The status that was sent; none when none was.
    pub status: Option<u16>,
    /// From the request's head to the response's last byte, microseconds.
    pub duration_us: u64,
    /// Bytes of request body received.
    pub request_bytes: u64,
    /// Bytes of response body sent.
    pub response_bytes: u64,
}

/// One audit record, joined: what `keygate audit` shows, under the names of the contract.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs, reason = "the fields are those of Use and UseEnd, in the contract's words")]
pub struct Record {
    pub id: Uuid,
    #[serde(with = "crate::clock::rfc3339")]
    pub time: Micros,
    pub key_id: Option<KeyId>,
    pub user_id: Option<UserId>,
    pub org_id: Option<OrgId>,
    pub auth_method: AuthMethod,
    pub ip: Option<IpAddr>,
    pub user_agent: Option<String>,
    pub action: String,
    pub method: String,
    pub path: String,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub provisional: bool,
    pub outcome: Outcome,
    pub status: Option<u16>,
    pub duration_us: Option<u64>,
    pub request_bytes: Option<u64>,
    pub response_bytes: Option<u64>,
    pub gateway: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outcome_names_are_those_of_the_contract() {
        let names: Vec<&str> = Outcome::all().map(Outcome::name).collect();
        let refused = ["unknown", "revoked", "expired", "user_removed", "org_suspended", "forbidden", "not_found"];
        let limited = ["rate_limited", "too_many_in_flight"];
        let failed = ["upstream_error", "internal_error", "client_error", "aborted"];
        assert_eq!(names, [&["in_progress", "completed"], &refused[..], &limited, &failed].concat());
        for outcome in Outcome::all() {
            let json = serde_json::to_string(&outcome).unwrap();
            assert_eq!(serde_json::from_str::<Outcome>(&json).unwrap(), outcome, "{json}");
        }
        assert!(serde_json::from_str::<Outcome>("\"other\"").is_err());
        assert_eq!(Outcome::all().filter(|outcome| outcome.is_refusal()).count(), 8);
    }

    #[test]
    fn refusals_that_share_an_outcome_are_recorded_alike() {
        let [unknown, malformed] = [Refusal::Unknown, Refusal::MalformedKey].map(Outcome::of_refusal);
        assert_eq!((unknown, malformed), (Some(Outcome::Refused(Refusal::Unknown)), unknown));
        assert_eq!(Outcome::of_refusal(Refusal::BodyTooLarge), Some(Outcome::ClientError));
        assert_eq!(Outcome::of_refusal(Refusal::NoCredential), None);
    }
}
