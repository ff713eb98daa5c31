//! Errors of the dashboard: why a request is answered with an error page or a problem.

use http::StatusCode;

use super::claim_mapping::ClaimError;
use crate::api::{RETRY_READ, RETRY_SOON};
use crate::management::ManagementError;
use crate::oidc;
use crate::request::RouteError;

/// Reason why the dashboard does not do what a request asks for. `error_text` has the status, the code and the texts.
#[derive(Debug, thiserror::Error)]
pub(super) enum DashboardError {
    /// A page that needs a session, without one.
    #[error("not signed in")]
    SignedOut,
    #[error("no page has this path")]
    NotFound,
    /// With the value of `Allow`.
    #[error("the path does not support this method")]
    MethodNotAllowed(String),
    /// A change that another site may have caused (CSRF).
    #[error("the request does not come from a page of this origin")]
    CrossSite,
    #[error("more than one session cookie")]
    AmbiguousSession,
    #[error("the request body is too large, or the connection broke off")]
    Body,
    #[error("timed out reading the request body")]
    BodyTimeout,
    /// With the seconds after which the next attempt is accepted.
    #[error("too many attempts to sign in from this address")]
    TooManyAttempts(u64),
    /// With the seconds after which the next request is accepted.
    #[error("too many requests of this person")]
    TooManyRequests(u64),
    #[error(transparent)]
    SignIn(SignInError),
    #[error(transparent)]
    Provider(Box<oidc::Error>),
    #[error(transparent)]
    Management(Box<ManagementError>),
    #[error("the operating system returned no random bytes")]
    Randomness(#[from] getrandom::Error),
    #[error("rendering a page failed")]
    Render(#[from] askama::Error),
    /// The handler panicked.
    #[error("the handler of the request panicked")]
    Internal,
}

/// Reason why a browser that comes back from an identity provider is not signed in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum SignInError {
    #[error("the callback has no `state`")]
    NoState,
    #[error("no sign-in with this `state` is pending: it was finished, has expired, or never began")]
    UnknownState,
    #[error("the sign-in began in another browser")]
    OtherBrowser,
    #[error("the sign-in began with another provider")]
    OtherProvider,
    #[error(transparent)]
    Claims(#[from] ClaimError),
}

impl DashboardError {
    /// Returns `true` if the error page leads to the sign-in page, and not to the API keys.
    pub(super) fn leads_to_sign_in(&self) -> bool {
        match self {
            Self::SignedOut | Self::TooManyAttempts(_) | Self::SignIn(_) | Self::Provider(_) => true,
            Self::Management(error) => {
                matches!(
                    **error,
                    ManagementError::InvalidLink | ManagementError::LinksDisabled | ManagementError::NoMembership(_)
                )
            }
            _ => false,
        }
    }

    /// Seconds after which the request can succeed, for `Retry-After`.
    pub(super) fn retry_after(&self) -> Option<u64> {
        let known = match self {
            Self::TooManyAttempts(seconds) | Self::TooManyRequests(seconds) => Some(*seconds),
            Self::Management(error) => error.retry_after(),
            _ => None,
        };
        known.or(match self.text().status {
            StatusCode::TOO_MANY_REQUESTS => Some(RETRY_READ),
            StatusCode::SERVICE_UNAVAILABLE => Some(RETRY_SOON),
            _ => None,
        })
    }

    /// The error with all its causes, on one line.
    pub(super) fn in_full(&self) -> String {
        match self {
            Self::Provider(error) => error.in_full(),
            Self::Management(error) => error.in_full(),
            error => error.to_string(),
        }
    }
}

impl From<ManagementError> for DashboardError {
    fn from(error: ManagementError) -> Self {
        Self::Management(Box::new(error))
    }
}

impl From<RouteError> for DashboardError {
    fn from(error: RouteError) -> Self {
        match error {
            RouteError::NotFound => Self::NotFound,
            RouteError::MethodNotAllowed(methods) => Self::MethodNotAllowed(methods),
        }
    }
}
