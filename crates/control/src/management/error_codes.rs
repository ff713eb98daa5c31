//! Kinds and codes of errors of operations, for programs.

use super::{ErrorKind, ManagementError};

/// The state did not answer, or did not acknowledge a change.
const STATE_UNAVAILABLE: (ErrorKind, &str) = (ErrorKind::Unavailable, "state_unavailable");

impl ManagementError {
    /// The kind of the error.
    pub fn kind(&self) -> ErrorKind {
        self.kind_and_code().0
    }

    /// The stable name of the error, for programs.
    pub fn code(&self) -> &'static str {
        self.kind_and_code().1
    }

    /// Seconds after which the operation can succeed, for `Retry-After`.
    pub fn retry_after(&self) -> Option<u64> {
        match self {
            Self::KeyCreationLimited(seconds) => Some(*seconds),
            Self::Federation(error) => error.retry_after(),
            // A new connection is accepted by the other process, which serves already.
            Self::HandedOver => Some(1),
            Self::CreationInProgress => Some(1),
            _ => None,
        }
    }

    /// The table of kinds and codes. Codes are part of the contract.
    fn kind_and_code(&self) -> (ErrorKind, &'static str) {
        use ErrorKind::{
            Conflict, Invalid, NotAllowed, NotFound, RateLimited, Stale, TooMany, Unavailable, Unprocessable,
        };
        match self {
            Self::InvalidName(_) => (Invalid, "invalid_name"),
            Self::InvalidEmail(_) => (Invalid, "invalid_email"),
            Self::InvalidConcurrent | Self::InvalidQuota(_) => (Invalid, "invalid_limits"),
            Self::InvalidPolicy(_) => (Invalid, "invalid_policy"),
            Self::OverlapTooLong => (Invalid, "invalid_overlap"),
            Self::InvalidDigest(_) | Self::DocumentedDigest | Self::SessionQuotaDigest | Self::IncompleteSecret => {
                (Invalid, "invalid_digest")
            }
            Self::PageLimit(_) | Self::TooManyKeyIds => (Invalid, "invalid_limit"),
            Self::Cursor(_) => (Invalid, "invalid_cursor"),
            Self::NoOrg(_) => (NotFound, "no_such_org"),
            Self::NoUser(_) => (NotFound, "no_such_user"),
            Self::NoKey(_) => (NotFound, "no_such_key"),
            Self::NoSession(_) => (NotFound, "no_such_session"),
            Self::NotPerson(_) => (Conflict, "not_a_person"),
            Self::NotService(_) => (Conflict, "not_a_service"),
            Self::NotAllowed => (NotAllowed, "not_allowed"),
            Self::MissingScope(_) | Self::OneOrg => (NotAllowed, "missing_scope"),
            Self::TokenEnded => (NotAllowed, "invalid_token"),
            Self::TokenExceeds(_) => (NotAllowed, "token_exceeds"),
            Self::NoToken(_) => (NotFound, "no_such_token"),
            Self::InvalidToken(_) => (Invalid, "invalid_token_settings"),
            Self::TooManyTokens(_) => (Conflict, "too_many_tokens"),
            Self::InvalidLink => (NotAllowed, "invalid_link"),
            Self::NoMembership(_) => (NotAllowed, "no_membership"),
            Self::Stale => (Stale, "changed_meanwhile"),
            Self::Repeated(_) => (Conflict, "repeated"),
            Self::TooManyIdempotencyKeys(_) => (RateLimited, "too_many_idempotency_keys"),
            Self::Revoked(_) => (Conflict, "key_revoked"),
            Self::Rotated { .. } => (Conflict, "rotated_meanwhile"),
            Self::InvalidKeyPolicy(_) | Self::BeyondOwner(_) | Self::TooLate(_) => (Invalid, "invalid_policy"),
            Self::Widened(_) => (NotAllowed, "policy_widened"),
            Self::InUse(_) => (Conflict, "key_in_use"),
            Self::DisabledByOperator(_) => (NotAllowed, "disabled_by_operator"),
            Self::SuspendedByOperator => (NotAllowed, "suspended_by_operator"),
            Self::OrgSuspended => (NotAllowed, "org_suspended"),
            Self::LastAdmin => (Conflict, "last_admin"),
            Self::Taken(_) | Self::AlreadyImported(_) => (Conflict, "taken"),
            Self::KeyIdOfAnotherOrg { .. } => (Unprocessable, "key_id_of_another_org"),
            Self::KeyIdTaken(_) => (Conflict, "key_id_taken"),
            Self::DigestTaken(_) | Self::DigestReplaced(_) => (Conflict, "digest_taken"),
            Self::CreationInProgress => (Conflict, "creation_in_progress"),
            Self::TooManyKeys(_) => (Conflict, "too_many_keys"),
            Self::KeyCreationLimited(_) => (RateLimited, "key_creation_limited"),
            Self::TooManySessions(_) => (Conflict, "too_many_sessions"),
            Self::NoSessions => (Conflict, "no_sessions"),
            Self::LinksDisabled => (Conflict, "no_links"),
            Self::Federation(error) => error.kind_and_code(),
            Self::TooManyReads => (TooMany, "too_many_reads"),
            Self::JournalBusy | Self::JournalUnreadable(_) | Self::Audit(_) => (Unavailable, "audit_unavailable"),
            Self::Unconfirmed(_) | Self::NotAcknowledged(_) | Self::StateUnavailable(_) => STATE_UNAVAILABLE,
            Self::ExportFailed(_) | Self::ImportFailed(_) | Self::HandedOver | Self::StateLost => STATE_UNAVAILABLE,
            Self::Randomness(_) => (Unavailable, "no_randomness"),
        }
    }
}
