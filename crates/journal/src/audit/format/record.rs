//! The input of the journal, [`Use`] and [`UseEnd`], and its output, the joined [`Record`] that auditors read.

use std::fmt;
use std::net::IpAddr;
use std::sync::LazyLock;

use serde::de::{self, Unexpected, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use uuid::Uuid;

use domain::budget::{BudgetTotal, Cost};
use domain::clock::Micros;
use domain::identity::{AuthMethod, MANAGEMENT_METHOD, OrgId, UserId};
use domain::key::KeyId;
use domain::management_token::TokenId;
use domain::refusal::Refusal;
use domain::trace_context::TraceId;

/// The beginning of a use, borrowed from the request: content of the *use* event.
#[derive(Clone, Debug)]
pub struct Use<'a> {
    /// UUIDv7, equal to `X-Request-Id`.
    pub id: Uuid,
    /// Time of the decision about the request.
    pub time: Micros,
    /// Number of this use among those of its key or session user, for the replay at start; `None` when no token was
    /// taken.
    pub number: Option<u64>,
    /// The key; `None` for sessions, for changes by management that concern no key, and for unknown keys.
    pub key_id: Option<KeyId>,
    /// The user.
    pub user_id: Option<UserId>,
    /// The organization.
    pub org_id: Option<OrgId>,
    /// Credential by which the caller was authenticated.
    pub auth_method: AuthMethod,
    /// The client's address, by the trusted-proxy rule; `None` for the admin socket.
    pub ip: Option<IpAddr>,
    /// The `User-Agent` as received; capped and escaped when written.
    pub user_agent: Option<&'a [u8]>,
    /// The route's name, else `METHOD /path`.
    pub action: &'a str,
    /// The HTTP method; [`MANAGEMENT_METHOD`] for a change by management.
    pub method: &'a str,
    /// The path as received, with the query string only where the route asks for it; capped and escaped when written.
    pub path: &'a str,
    /// Admitted while the shared state was away, against this gateway's own share of the limits.
    pub provisional: bool,
    /// Tokens that it took, and units that it reserved, if it took any.
    pub cost: Cost,
    /// Units that its subject had reserved of a budget by then, this use included; `None` without a budget.
    pub budget: Option<BudgetTotal>,
    /// Trace of the request; `None` when traces are off.
    pub trace_id: Option<TraceId>,
}

/// The beginning of a change by management.
#[derive(Clone, Debug)]
pub struct ChangeUse<'a> {
    /// The part that a use has as well; its user is the one who makes the change.
    pub opening: Use<'a>,
    /// The one who makes the change: a user of the machine, or of the dashboard, or a program by its token.
    pub actor: &'a str,
    /// The user who is acted on.
    pub subject: Option<UserId>,
    /// The management token with which a program makes the change; `None` for people.
    pub token_id: Option<TokenId>,
}

/// The kind of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RecordKind {
    /// A request with a key or a session.
    Request,
    /// A change made by management, through the admin socket, by a signed-in user, or by a program with its token.
    Change,
}

impl RecordKind {
    /// Derives the kind of a record. The journal and the contract have no field for it: a change has
    /// [`MANAGEMENT_METHOD`] as its method. A request with a key is never a change, whatever method its client sends,
    /// and admission refuses requests with a session that send this method.
    pub(super) fn derive(auth_method: AuthMethod, method: &str) -> Self {
        if auth_method != AuthMethod::ApiKey && method == MANAGEMENT_METHOD { Self::Change } else { Self::Request }
    }
}

/// The outcome of a use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// Not ended yet. Only readers give this outcome; it is never written.
    InProgress,
    /// The upstream's response, or a tunnel, went to its end.
    Completed,
    /// Admitted for another proxy, which forwards the request: its end is not seen.
    Decided,
    /// Refused by the gateway before anything was sent to the upstream. The table of refusals has the name in the
    /// record. [`Refusal::Unknown`] stands for all keys that do not exist (recorded at a bounded rate).
    Refused(Refusal),
    /// The upstream could not be reached, sent an invalid response, was too slow, or broke off its response.
    UpstreamError,
    /// The client's body was too large, too slow or malformed.
    ClientError,
    /// The gateway failed while it handled the request.
    InternalError,
    /// Ended by the gateway, because its key, secret, user, organization or session was revoked while it was open.
    Terminated,
    /// The client disconnected, or the gateway died.
    Aborted,
    /// A change was made, but too few replicas of the state confirmed it in time: a failover may undo it.
    Unconfirmed,
    /// Of a change it is not known whether it was made: the state gave no answer, or the gateway was killed and the
    /// state does not tell.
    InDoubt,
}

impl Outcome {
    /// Outcomes that are not refusals.
    const OTHERS: [Self; 10] = [
        Self::InProgress,
        Self::Completed,
        Self::Decided,
        Self::UpstreamError,
        Self::InternalError,
        Self::ClientError,
        Self::Terminated,
        Self::Aborted,
        Self::Unconfirmed,
        Self::InDoubt,
    ];

    /// All outcomes that a record can have.
    pub fn all() -> impl Iterator<Item = Self> {
        let has_own = |refusal: &Refusal| Self::of_refusal(*refusal) == Some(Self::Refused(*refusal));
        let refused = Refusal::ALL.iter().copied().filter(has_own).map(Self::Refused);
        let (succeeded, failed) = Self::OTHERS.split_at(3);
        succeeded.iter().copied().chain(refused).chain(failed.iter().copied())
    }

    /// The outcome of a refused request; `None` when such requests are not recorded.
    pub fn of_refusal(refusal: Refusal) -> Option<Self> {
        // By index, because refused requests come in floods: looking a name up compares it with
        // those of the whole table.
        static OUTCOMES: LazyLock<Vec<Option<Outcome>>> =
            LazyLock::new(|| Refusal::ALL.iter().map(|refusal| Outcome::from_name(refusal.row().outcome?)).collect());
        OUTCOMES[refusal as usize]
    }

    /// Finds the outcome with this name in records.
    pub fn from_name(name: &str) -> Option<Self> {
        let other = Self::OTHERS.into_iter().find(|other| other.name() == name);
        // The first of the refusals that share an outcome stands for all of them.
        let refusal = || Refusal::ALL.iter().copied().find(|refusal| refusal.row().outcome == Some(name));
        other.or_else(|| refusal().map(Self::Refused))
    }

    /// The name in records.
    pub fn name(self) -> &'static str {
        match self {
            Self::Refused(refusal) => refusal.row().outcome.expect("of_refusal gives only refusals that are recorded"),
            Self::InProgress => "in_progress",
            Self::Completed => "completed",
            Self::Decided => "decided",
            Self::UpstreamError => "upstream_error",
            Self::ClientError => "client_error",
            Self::InternalError => "internal_error",
            Self::Terminated => "terminated",
            Self::Aborted => "aborted",
            Self::Unconfirmed => "unconfirmed",
            Self::InDoubt => "in_doubt",
        }
    }

    /// True when a known key or session was refused admission, so that its request was not forwarded.
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

/// The end of a use: content of the *outcome* event.
#[derive(Clone, Copy, Debug)]
pub struct UseEnd {
    /// The outcome.
    pub outcome: Outcome,
    /// Status code of the response that was sent; `None` when none was.
    pub status: Option<u16>,
    /// Time from the request's head to the response's last byte, in microseconds.
    pub duration_us: u64,
    /// Bytes of request body received.
    pub request_bytes: u64,
    /// Bytes of response body sent.
    pub response_bytes: u64,
}

/// Settlement of a budget by the end of a use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settled {
    /// Units that it cost.
    pub cost: u64,
    /// Units that had come back to its subject by then.
    pub returned: BudgetTotal,
}

/// One audit record, joined from a use and its outcome: what `keygate audit` shows, under the names of the contract.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs, reason = "the fields are those of Use, ChangeUse and UseEnd, in the contract's words")]
pub struct Record {
    pub id: Uuid,
    #[serde(with = "domain::clock::rfc3339")]
    pub time: Micros,
    pub key_id: Option<KeyId>,
    pub user_id: Option<UserId>,
    pub org_id: Option<OrgId>,
    pub auth_method: AuthMethod,
    /// Only of a change by management, as `subject` and `token_id`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub actor: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subject: Option<UserId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token_id: Option<TokenId>,
    pub ip: Option<IpAddr>,
    pub user_agent: Option<String>,
    pub action: String,
    pub method: String,
    pub path: String,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub provisional: bool,
    /// Units that it reserved, or took as tokens, if these were several; what it cost of a budget, if its end said so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost: Option<u64>,
    /// The budget that it spent: subject, and start of its total in seconds, with `/` between.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub budget: Option<String>,
    pub outcome: Outcome,
    pub status: Option<u16>,
    pub duration_us: Option<u64>,
    pub request_bytes: Option<u64>,
    pub response_bytes: Option<u64>,
    pub gateway: String,
    /// Number of refusals that this record stands for; `None` for a single use. The fields above
    /// are those of the first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub count: Option<u64>,
    /// Time of the last of these refusals.
    #[serde(default, with = "domain::clock::rfc3339::option", skip_serializing_if = "Option::is_none")]
    pub last_time: Option<Micros>,
    /// Number of addresses from which they came.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub addresses: Option<u64>,
    /// The first of these addresses, up to four.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ips: Vec<IpAddr>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trace_id: Option<TraceId>,
    /// A trial of a sink: no journal has such a record.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub test: bool,
}

impl Record {
    /// Number of uses that this record stands for: 1, or the count of a record of several refusals.
    pub fn uses(&self) -> u64 {
        self.count.unwrap_or(1)
    }

    /// Time of the use; in a record of several refusals that of the last one.
    pub fn last(&self) -> Micros {
        self.last_time.unwrap_or(self.time)
    }

    /// The kind of this record.
    pub fn kind(&self) -> RecordKind {
        RecordKind::derive(self.auth_method, &self.method)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outcome_names_are_those_of_the_contract() {
        let names: Vec<&str> = Outcome::all().map(Outcome::name).collect();
        let refused = [
            "unknown",
            "revoked",
            "expired",
            "user_removed",
            "user_suspended",
            "key_expired",
            "key_disabled",
            "address_refused",
            "org_suspended",
            "forbidden",
            "not_found",
        ];
        let limited = ["cost_over_limit", "rate_limited", "quota_exhausted", "too_many_in_flight"];
        let failed =
            ["upstream_error", "internal_error", "client_error", "terminated", "aborted", "unconfirmed", "in_doubt"];
        assert_eq!(names, [&["in_progress", "completed", "decided"], &refused[..], &limited, &failed].concat());
        for outcome in Outcome::all() {
            let json = serde_json::to_string(&outcome).unwrap();
            assert_eq!(serde_json::from_str::<Outcome>(&json).unwrap(), outcome, "{json}");
        }
        assert!(serde_json::from_str::<Outcome>("\"other\"").is_err());
        assert_eq!(Outcome::all().filter(|outcome| outcome.is_refusal()).count(), 14);
    }

    #[test]
    fn refusals_that_share_an_outcome_are_recorded_alike() {
        let [unknown, malformed] = [Refusal::Unknown, Refusal::MalformedKey].map(Outcome::of_refusal);
        assert_eq!((unknown, malformed), (Some(Outcome::Refused(Refusal::Unknown)), unknown));
        assert_eq!(Outcome::of_refusal(Refusal::BodyTooLarge), Some(Outcome::ClientError));
        assert_eq!(Outcome::of_refusal(Refusal::NoCredential), None);
    }
}
