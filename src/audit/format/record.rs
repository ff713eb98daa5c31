//! The audit record (what auditors read) and the events it is joined from (what the journal holds).

use std::net::IpAddr;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::clock::Micros;
use crate::identity::{AuthMethod, OrgId, UserId};
use crate::key::KeyId;

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
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// Still going on; only a reader says so, it is never written.
    InProgress,
    /// The upstream's response went out whole.
    Completed,
    /// Refused: unknown key (recorded at a bounded rate).
    Unknown,
    /// Refused: the key is revoked.
    Revoked,
    /// Refused: the secret was replaced and its overlap is over.
    Expired,
    /// Refused: the key's user was removed.
    UserRemoved,
    /// Refused: the organization is suspended.
    OrgSuspended,
    /// Refused: the user lacks the permission.
    Forbidden,
    /// Refused: no route leads there.
    NotFound,
    /// Refused: the bucket is empty.
    RateLimited,
    /// Refused: no slot.
    TooManyInFlight,
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
    /// All of them.
    pub const ALL: [Self; 15] = [
        Self::InProgress,
        Self::Completed,
        Self::Unknown,
        Self::Revoked,
        Self::Expired,
        Self::UserRemoved,
        Self::OrgSuspended,
        Self::Forbidden,
        Self::NotFound,
        Self::RateLimited,
        Self::TooManyInFlight,
        Self::UpstreamError,
        Self::InternalError,
        Self::ClientError,
        Self::Aborted,
    ];

    /// Whether a known key or session was refused: its request went nowhere.
    pub const fn is_refusal(self) -> bool {
        match self {
            Self::Revoked
            | Self::Expired
            | Self::UserRemoved
            | Self::OrgSuspended
            | Self::Forbidden
            | Self::NotFound
            | Self::RateLimited
            | Self::TooManyInFlight => true,
            Self::InProgress
            | Self::Completed
            | Self::Unknown
            | Self::UpstreamError
            | Self::ClientError
            | Self::InternalError
            | Self::Aborted => false,
        }
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
    pub time: String,
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
