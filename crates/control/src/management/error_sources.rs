//! Errors of operations that come from elsewhere.

use super::read_queue::QueueFull;
use super::{FederationError, ManagementError};
use state::{ChangeError, StorageError, Unavailable};

impl From<Unavailable> for ManagementError {
    fn from(error: Unavailable) -> Self {
        match error {
            Unavailable::Lost => Self::StateLost,
            other => Self::StateUnavailable(other),
        }
    }
}

impl From<QueueFull> for ManagementError {
    fn from(full: QueueFull) -> Self {
        match full {
            QueueFull::Person => Self::TooManyReads,
            QueueFull::Total => Self::JournalBusy,
        }
    }
}

impl From<ChangeError> for ManagementError {
    fn from(error: ChangeError) -> Self {
        match error {
            ChangeError::NoOrg(org) => Self::NoOrg(org.to_string()),
            ChangeError::NoUser(user) => Self::NoUser(user.to_string()),
            ChangeError::NotPerson(user) => Self::NotPerson(user.to_string()),
            ChangeError::NotService(user) => Self::NotService(user.to_string()),
            ChangeError::NoKey(key) => Self::NoKey(key),
            ChangeError::NoSession(session) => Self::NoSession(session.to_string()),
            ChangeError::Revoked(key) => Self::Revoked(key),
            ChangeError::Rotated { key, rotated } => Self::Rotated { key, by: None, at: rotated },
            ChangeError::InvalidPolicy { reason, .. } => Self::InvalidKeyPolicy(reason),
            ChangeError::Widened(key) => Self::Widened(key),
            ChangeError::InUse(key) => Self::InUse(key),
            ChangeError::DisabledByOperator(key) => Self::DisabledByOperator(key),
            ChangeError::SuspendedByOperator(_) => Self::SuspendedByOperator,
            ChangeError::OrgSuspended(_) => Self::OrgSuspended,
            ChangeError::NotAllowed(_) => Self::NotAllowed,
            ChangeError::LastAdmin(_) => Self::LastAdmin,
            ChangeError::TooLate(late) => Self::TooLate(late),
            ChangeError::InvalidOrgPolicy(invalid) => Self::InvalidPolicy(invalid),
            ChangeError::Taken(what) => Self::Taken(what),
            ChangeError::TooManyKeys(limit) => Self::TooManyKeys(limit),
            ChangeError::TooManySessions(limit) => Self::TooManySessions(limit),
            // Rounded up: a caller that comes back after these seconds finds a whole token.
            ChangeError::KeyCreationLimited { wait_us } => Self::KeyCreationLimited(wait_us.div_ceil(1_000_000).max(1)),
            ChangeError::TokenEnded(_) => Self::TokenEnded,
            ChangeError::NoToken(token) => Self::NoToken(token),
            ChangeError::TooManyTokens(limit) => Self::TooManyTokens(limit),
            ChangeError::NoFederationRule(rule) => FederationError::NoRule(rule).into(),
            ChangeError::TokenReplayed => FederationError::Replayed.into(),
            ChangeError::ExchangeLimited { wait_us } => {
                FederationError::Limited(wait_us.div_ceil(1_000_000).max(1)).into()
            }
            ChangeError::HandedOver => Self::HandedOver,
            ChangeError::NotReplicated { .. } => Self::Unconfirmed(error),
            ChangeError::Unavailable(StorageError::Redis(Unavailable::Lost)) => Self::StateLost,
            ChangeError::Unavailable(_) | ChangeError::Closed => Self::NotAcknowledged(error),
            // No operation has a precondition.
            ChangeError::Stale => Self::Stale,
            ChangeError::Repeated(record) => Self::Repeated(Box::new(record)),
            ChangeError::TooManyIdempotencyKeys(limit) => Self::TooManyIdempotencyKeys(limit),
        }
    }
}
