//! Errors of the table that come from elsewhere.

use super::ManagementError;
use crate::management::read_queue::QueueFull;
use crate::oidc::{self, Fault, SubjectTokenError};
use domain::session::AmbiguousCookie;
use state::{ChangeError, StorageError, Unavailable};

/// Reason why a request has no route.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum RouteError {
    /// No route has this path.
    NotFound,
    /// Routes have this path, for other methods: the value of `Allow`.
    MethodNotAllowed(String),
}

impl RouteError {
    /// The error of a path that routes have for these methods. Each of these stands once in `Allow`; every route for
    /// `GET` serves `HEAD`.
    pub(crate) fn new(methods: impl Iterator<Item = &'static str>) -> Self {
        let mut names = Vec::new();
        for name in methods.map(|method| if method == "GET" { "GET, HEAD" } else { method }) {
            if !names.contains(&name) {
                names.push(name);
            }
        }
        if names.is_empty() { Self::NotFound } else { Self::MethodNotAllowed(names.join(", ")) }
    }
}

impl From<RouteError> for ManagementError {
    fn from(error: RouteError) -> Self {
        match error {
            RouteError::NotFound => Self::NotFound,
            RouteError::MethodNotAllowed(methods) => Self::MethodNotAllowed(methods),
        }
    }
}

impl From<AmbiguousCookie> for ManagementError {
    fn from(_: AmbiguousCookie) -> Self {
        Self::AmbiguousSession
    }
}

impl From<SubjectTokenError> for ManagementError {
    fn from(error: SubjectTokenError) -> Self {
        if error.is_of_issuer() { Self::IssuerUnavailable(error) } else { Self::TokenRefused(error) }
    }
}

/// A sign-in by an identity provider failed.
impl From<oidc::Error> for ManagementError {
    fn from(error: oidc::Error) -> Self {
        let of_fault = match error.fault() {
            Fault::ProviderUnavailable => Self::ProviderUnavailable,
            Fault::Declined => Self::ProviderDeclined,
            Fault::Browser => Self::InvalidCallback,
            Fault::Provider => Self::InvalidIdentity,
            Fault::Gateway => Self::ProviderSettings,
        };
        of_fault(Box::new(error))
    }
}

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
            ChangeError::GrantExceeds(permission) => Self::GrantExceeds(permission),
            ChangeError::LastAdmin(_) => Self::LastAdmin,
            ChangeError::TooLate(late) => Self::TooLate(late),
            ChangeError::InvalidOrgPolicy(invalid) => Self::InvalidPolicy(invalid),
            ChangeError::Taken(what) => Self::Taken(what),
            ChangeError::TooManyKeys(limit) => Self::TooManyKeys(limit),
            ChangeError::TooManySessions(limit) => Self::TooManySessions(limit),
            ChangeError::KeyCreationLimited { wait_us } => Self::KeyCreationLimited(whole_seconds(wait_us)),
            ChangeError::TokenEnded(_) => Self::TokenEnded,
            ChangeError::NoToken(token) => Self::NoToken(token),
            ChangeError::TooManyTokens(limit) => Self::TooManyTokens(limit),
            ChangeError::NoFederationRule(rule) => Self::NoRule(rule),
            ChangeError::TokenReplayed => Self::TokenReplayed,
            ChangeError::ExchangeLimited { wait_us } => Self::ExchangeLimited(whole_seconds(wait_us)),
            ChangeError::HandedOver => Self::HandedOver,
            ChangeError::NotReplicated { .. } => Self::Unconfirmed(error),
            ChangeError::Unavailable(StorageError::Redis(Unavailable::Lost)) => Self::StateLost,
            ChangeError::Unavailable(_) | ChangeError::Closed => Self::NotAcknowledged(error),
            ChangeError::Stale => Self::Stale,
            ChangeError::Repeated(record) => Self::Repeated(Box::new(record)),
            ChangeError::TooManyIdempotencyKeys(limit) => Self::TooManyIdempotencyKeys(limit),
        }
    }
}

/// Rounded up: a caller that comes back after these seconds finds a whole token.
fn whole_seconds(micros: u64) -> u64 {
    micros.div_ceil(1_000_000).max(1)
}
