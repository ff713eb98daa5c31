//! Errors of federation rules, and of exchanges of tokens by them.

use super::error_kind::ErrorKind;
use crate::oidc::{InvalidIssuer, SubjectTokenError};
use domain::counted::counted;
use domain::identity::Permission;
use state::InvalidFederationRule;

/// Reason why a rule was not changed, or a token not exchanged. No text has anything of a token but the name of a
/// claim.
#[derive(Debug, thiserror::Error)]
pub enum FederationError {
    /// The rule is not valid.
    #[error(transparent)]
    InvalidRule(#[from] InvalidFederationRule),
    /// The issuer of the rule cannot be one.
    #[error("the issuer {0}")]
    InvalidIssuer(InvalidIssuer),
    /// The organization has no such rule.
    #[error("there is no federation rule `{0}` in this organization; see `keygate federation list --org ORG`")]
    NoRule(String),

    /// The audience of an exchange names no rule for tokens of this issuer. Also where there is no such organization,
    /// so that a client without a token does not learn which organizations there are.
    #[error("there is no rule of this name for tokens of this issuer; name it ORGANIZATION/RULE")]
    Target,
    /// The token is not accepted.
    #[error(transparent)]
    Token(#[from] SubjectTokenError),
    /// A claim does not match the rule.
    #[error("the claim `{0}` of the subject token does not match the rule")]
    Claim(String),
    /// The service or its organization is suspended.
    #[error("the service of the rule, or its organization, is suspended or removed")]
    Suspended,
    /// A permission is asked for that the rule does not give.
    #[error("the rule does not give the permission `{0}`; leave it out of the scope")]
    Scope(Permission),
    /// The token was exchanged before.
    #[error("the subject token was exchanged already; each gives one key: ask the CI for a new one")]
    Replayed,
    /// The rule has exchanged as many tokens as it may for now; with the seconds to wait.
    #[error("too many tokens were exchanged by this rule in a short time; wait {}", counted(.0, "second"))]
    Limited(u64),
}

impl FederationError {
    /// The table of kinds and codes. Codes are part of the contract.
    pub(super) fn kind_and_code(&self) -> (ErrorKind, &'static str) {
        match self {
            Self::InvalidRule(_) | Self::InvalidIssuer(_) => (ErrorKind::Invalid, "invalid_rule"),
            Self::NoRule(_) => (ErrorKind::NotFound, "no_such_rule"),
            Self::Target => (ErrorKind::NotFound, "unknown_target"),
            Self::Token(error) if error.is_of_issuer() => (ErrorKind::Unavailable, "issuer_unavailable"),
            Self::Token(_) => (ErrorKind::NotAllowed, "token_refused"),
            Self::Claim(_) => (ErrorKind::NotAllowed, "claim_mismatch"),
            Self::Suspended => (ErrorKind::NotAllowed, "service_suspended"),
            Self::Scope(_) => (ErrorKind::NotAllowed, "scope_exceeded"),
            Self::Replayed => (ErrorKind::Conflict, "token_replayed"),
            Self::Limited(_) => (ErrorKind::RateLimited, "exchange_limited"),
        }
    }

    /// Seconds after which an exchange can succeed.
    pub(super) fn retry_after(&self) -> Option<u64> {
        if let Self::Limited(seconds) = self { Some(*seconds) } else { None }
    }
}
