//! Why an operation was not performed, and what to do about it.

use std::error::Error;

use crate::audit;
use crate::key::{InvalidDigest, KeyId};
use crate::quota::QuotaError;
use crate::state::{self, ChangeError};

/// Why an operation was not performed. Nothing was changed, unless the cause of a [`ManagementError::State`] says so.
#[derive(Debug, thiserror::Error)]
pub enum ManagementError {
    /// A name that cannot be shown in one line of a table.
    #[error("a name is 1 to 100 characters, without control characters and without blanks around it; choose another")]
    Name,
    /// A name that could be taken for an id.
    #[error("a name must not look like an organization's id; choose another")]
    NameLikeId,
    /// Not an email address.
    #[error("`{0}` is not an email address such as ada@example.com; correct it")]
    Email(String),
    /// A limit of requests in flight that admits nothing.
    #[error("concurrent must be 1 to 1000000; to refuse all requests of an organization, suspend it")]
    Concurrent,
    /// A quota that cannot be kept.
    #[error(transparent)]
    Quota(#[from] QuotaError),
    /// An overlap that outlives everybody's memory.
    #[error("overlap must be at most 366d; rotate again when it is over")]
    Overlap,
    /// Not a SHA-256.
    #[error("sha256 is not the SHA-256 of a key")]
    Digest(#[from] InvalidDigest),
    /// A key that is here already.
    #[error("a key with this SHA-256 was imported or made already, as key {0}")]
    Present(KeyId),
    /// No such organization.
    #[error("there is no organization `{0}`; see `keygate org list`")]
    NoOrg(String),
    /// No such user, or removed.
    #[error("there is no user `{0}` in this organization; see `keygate user list --org ORG`")]
    NoUser(String),
    /// No such key.
    #[error("there is no key {0}; see `keygate key list --org ORG`, and give the nine characters after `sk_live_`")]
    NoKey(KeyId),
    /// No such session, or it has ended.
    #[error("there is no session `{0}`; see `keygate session list`")]
    NoSession(String),
    /// The key is revoked.
    #[error("key {0} is revoked, for good; create another")]
    Revoked(KeyId),
    /// Somebody may not have this done.
    #[error("you may not do this; ask an administrator of your organization")]
    NotAllowed,
    /// There are no web sessions.
    #[error("there are no web sessions: the configuration has no block `session`")]
    NoSessions,
    /// Sign-in links are switched off.
    #[error("sign-in links are switched off by `session.links`; sign in by an identity provider")]
    NoLinks,
    /// A link that is good for nothing.
    #[error("this link was used already, or has expired; ask for another")]
    BadLink,
    /// Somebody who belongs nowhere.
    #[error("{0} belongs to no organization here; ask an administrator to add them with `keygate user create`")]
    NoMembership(String),
    /// The digest of a session quota key, given for an API key.
    #[error("sha256 is not the SHA-256 of a key")]
    SessionQuotaDigest,
    /// As many keys as people may make for one user.
    #[error("this user has {0} keys that work already; revoke one, or ask the operator of this service")]
    TooManyKeys(usize),
    /// A page of another size.
    #[error("limit must be 1 to 200")]
    PageSize,
    /// More keys at once than are answered.
    #[error("keys must be at most 200 at once; ask again for the others")]
    TooManyAsked,
    /// Not a place in a list.
    #[error("`before` is no cursor of this list; begin without one")]
    Cursor(#[from] audit::InvalidJournalCursor),
    /// The journal cannot be read.
    #[error("the audit journal cannot be read; look at the audit directory")]
    JournalUnread(#[source] std::io::Error),
    /// Another record has this already.
    #[error("this {0} is in use already; choose another")]
    Taken(&'static str),
    /// The change could not be recorded, so it was not made.
    #[error("the change cannot be recorded, so it was not made; look at the audit directory and its disk")]
    Audit(#[from] audit::Unavailable),
    /// The state did not make it durable, or cannot say so.
    #[error("the change was not acknowledged by the state; look at the state's disk or servers, then try again")]
    State(#[source] ChangeError),
    /// The state did not answer a question.
    #[error("the state cannot be asked now; try again")]
    StateAway(#[from] state::Unavailable),
    /// The operating system gave no randomness.
    #[error("the operating system gave no randomness; try again")]
    Randomness(#[from] getrandom::Error),
}

/// What sort of no it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorKind {
    /// The request was wrong: 400.
    Invalid,
    /// What it names is not there: 404.
    NotFound,
    /// Whoever asks may not: 403.
    NotAllowed,
    /// It cannot be with things as they are: 409.
    Conflict,
    /// It cannot be now: 503.
    Unavailable,
}

impl ManagementError {
    /// What sort of no it is.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::NoOrg(_) | Self::NoUser(_) | Self::NoKey(_) | Self::NoSession(_) => ErrorKind::NotFound,
            Self::Revoked(_) | Self::Taken(_) | Self::Present(_) | Self::TooManyKeys(_) => ErrorKind::Conflict,
            Self::NoSessions | Self::NoLinks => ErrorKind::Conflict,
            Self::NotAllowed | Self::BadLink | Self::NoMembership(_) => ErrorKind::NotAllowed,
            Self::JournalUnread(_) | Self::Audit(_) | Self::State(_) | Self::StateAway(_) | Self::Randomness(_) => {
                ErrorKind::Unavailable
            }
            Self::Name
            | Self::NameLikeId
            | Self::Email(_)
            | Self::Concurrent
            | Self::Quota(_)
            | Self::Overlap
            | Self::Digest(_)
            | Self::SessionQuotaDigest
            | Self::PageSize
            | Self::TooManyAsked
            | Self::Cursor(_) => ErrorKind::Invalid,
        }
    }

    /// What was wrong, and why, on one line.
    pub fn in_full(&self) -> String {
        let causes = std::iter::successors(Error::source(self), |cause| (*cause).source());
        causes.fold(self.to_string(), |text, cause| format!("{text}: {cause}"))
    }

    /// The stable name of the error, for programs.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Name | Self::NameLikeId => "invalid_name",
            Self::Email(_) => "invalid_email",
            Self::Concurrent | Self::Quota(_) => "invalid_limits",
            Self::Overlap => "invalid_overlap",
            Self::Digest(_) | Self::SessionQuotaDigest => "invalid_digest",
            Self::TooManyKeys(_) => "too_many_keys",
            Self::PageSize | Self::TooManyAsked => "invalid_limit",
            Self::Cursor(_) => "invalid_cursor",
            Self::NotAllowed => "not_allowed",
            Self::NoSessions => "no_sessions",
            Self::NoLinks => "no_links",
            Self::BadLink => "invalid_link",
            Self::NoMembership(_) => "no_membership",
            Self::NoOrg(_) => "no_such_org",
            Self::NoUser(_) => "no_such_user",
            Self::NoKey(_) => "no_such_key",
            Self::NoSession(_) => "no_such_session",
            Self::Revoked(_) => "key_revoked",
            Self::Taken(_) | Self::Present(_) => "taken",
            Self::Audit(_) | Self::JournalUnread(_) => "audit_unavailable",
            Self::State(_) | Self::StateAway(_) => "state_unavailable",
            Self::Randomness(_) => "no_randomness",
        }
    }
}

impl ErrorKind {
    /// The status that says so over HTTP (RFC 9110 section 15).
    pub fn status(self) -> http::StatusCode {
        match self {
            Self::Invalid => http::StatusCode::BAD_REQUEST,
            Self::NotAllowed => http::StatusCode::FORBIDDEN,
            Self::NotFound => http::StatusCode::NOT_FOUND,
            Self::Conflict => http::StatusCode::CONFLICT,
            Self::Unavailable => http::StatusCode::SERVICE_UNAVAILABLE,
        }
    }
}

impl From<ChangeError> for ManagementError {
    fn from(error: ChangeError) -> Self {
        match error {
            ChangeError::NoOrg(org) => Self::NoOrg(org.to_string()),
            ChangeError::NoUser(user) => Self::NoUser(user.to_string()),
            ChangeError::NoKey(key) => Self::NoKey(key),
            ChangeError::NoSession(session) => Self::NoSession(session.to_string()),
            ChangeError::Revoked(key) => Self::Revoked(key),
            ChangeError::Taken(what) => Self::Taken(what),
            ChangeError::Unavailable(_) | ChangeError::NotReplicated { .. } | ChangeError::Closed => Self::State(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_that_does_not_answer_is_unavailable() {
        let not_replicated = ChangeError::NotReplicated { wanted: 2, reached: 1 };
        let unavailable = ChangeError::Unavailable(state::Failure::Redis(state::Unavailable::TimedOut));
        for error in [not_replicated.into(), unavailable.into(), ManagementError::from(state::Unavailable::Unreachable)]
        {
            assert_eq!((error.code(), error.kind()), ("state_unavailable", ErrorKind::Unavailable), "{error}");
        }
    }
}
