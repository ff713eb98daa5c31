//! Errors of an exchange, and their names in the protocol (RFC 6749, section 5.2; RFC 8693, section 2.2.2).

use http::StatusCode;

use crate::management::{ErrorKind, FederationError, ManagementError};

/// Reason why a token was not exchanged.
#[derive(Debug, thiserror::Error)]
pub(super) enum ExchangeError {
    /// The method is not `POST`.
    #[error("tokens are exchanged with POST")]
    Method,
    /// The body is no form.
    #[error("the body must be application/x-www-form-urlencoded")]
    MediaType,
    /// The body is too large, or the connection broke off.
    #[error("the body is too large, or broke off")]
    Body,
    /// The body did not arrive in time.
    #[error("the body did not arrive in time")]
    BodyTimeout,
    /// A parameter is missing or wrong.
    #[error("the parameter `{0}` {1}")]
    Parameter(&'static str, &'static str),
    /// The grant type is another one.
    #[error("the grant type must be urn:ietf:params:oauth:grant-type:token-exchange")]
    GrantType,
    /// The scope has something else than permissions.
    #[error("the scope must be permissions, separated by spaces")]
    Scope,
    /// The client address has tried too often; with the seconds to wait.
    #[error("too many exchanges from this address have failed; wait {0} s")]
    TooManyAttempts(u64),
    /// The exchange was refused.
    #[error(transparent)]
    Refused(#[from] ManagementError),
    /// A panic.
    #[error("the exchange failed; the log has the reason by the id of the request")]
    Internal,
}

impl From<FederationError> for ExchangeError {
    fn from(error: FederationError) -> Self {
        Self::Refused(error.into())
    }
}

impl ExchangeError {
    /// The status of the response, and the value of `error`.
    pub(super) fn status_and_error(&self) -> (StatusCode, &'static str) {
        match self {
            Self::Method => (StatusCode::METHOD_NOT_ALLOWED, "invalid_request"),
            Self::MediaType => (StatusCode::UNSUPPORTED_MEDIA_TYPE, "invalid_request"),
            Self::BodyTimeout => (StatusCode::REQUEST_TIMEOUT, "invalid_request"),
            Self::Body | Self::Parameter(..) => (StatusCode::BAD_REQUEST, "invalid_request"),
            Self::GrantType => (StatusCode::BAD_REQUEST, "unsupported_grant_type"),
            Self::Scope => (StatusCode::BAD_REQUEST, "invalid_scope"),
            Self::TooManyAttempts(_) => (StatusCode::TOO_MANY_REQUESTS, "slow_down"),
            Self::Internal => (StatusCode::INTERNAL_SERVER_ERROR, "server_error"),
            Self::Refused(error) => refusal(error),
        }
    }

    /// The stable name of the error, for programs.
    pub(super) fn code(&self) -> &'static str {
        match self {
            Self::Method => "method_not_allowed",
            Self::MediaType => "unsupported_media_type",
            Self::Body => "invalid_body",
            Self::BodyTimeout => "body_timeout",
            Self::Parameter(..) => "invalid_parameter",
            Self::GrantType => "unsupported_grant_type",
            Self::Scope => "invalid_scope",
            Self::TooManyAttempts(_) => "too_many_attempts",
            Self::Internal => "internal",
            Self::Refused(ManagementError::Federation(FederationError::NoRule(_))) => "unknown_target",
            Self::Refused(error) => error.code(),
        }
    }

    /// The explanation, for people. Nothing of it is about this installation.
    pub(super) fn description(&self) -> String {
        match self {
            // Removed between the look at it and the exchange.
            Self::Refused(ManagementError::Federation(FederationError::NoRule(_))) => {
                FederationError::Target.to_string()
            }
            Self::Refused(error @ ManagementError::Federation(_)) => error.to_string(),
            Self::Refused(error) if error.kind() == ErrorKind::Unavailable => {
                "the gateway cannot make a key now; try again".to_owned()
            }
            Self::Refused(_) => Self::Internal.to_string(),
            other => other.to_string(),
        }
    }

    /// Seconds after which the request can succeed, for `Retry-After`.
    pub(super) fn retry_after(&self) -> Option<u64> {
        match self {
            Self::TooManyAttempts(seconds) => Some(*seconds),
            Self::Refused(error) => error.retry_after(),
            _ => None,
        }
    }

    /// Returns whether the client has done nothing wrong: it does not count as a failed attempt. While the keys of an
    /// issuer cannot be read, every token counts: none of them is known to be valid.
    pub(super) fn is_of_gateway(&self) -> bool {
        match self {
            Self::Refused(ManagementError::Federation(error)) => matches!(error, FederationError::Limited(_)),
            Self::Refused(error) => error.kind() == ErrorKind::Unavailable,
            Self::Internal => true,
            _ => false,
        }
    }

    /// The error and its causes, on one line.
    pub(super) fn in_full(&self) -> String {
        match self {
            Self::Refused(ManagementError::Federation(FederationError::Token(error))) => error.in_full(),
            Self::Refused(error) => error.in_full(),
            other => other.to_string(),
        }
    }
}

fn refusal(error: &ManagementError) -> (StatusCode, &'static str) {
    let ManagementError::Federation(error) = error else {
        return match error.kind() {
            ErrorKind::Unavailable => (StatusCode::SERVICE_UNAVAILABLE, "temporarily_unavailable"),
            _ => (StatusCode::INTERNAL_SERVER_ERROR, "server_error"),
        };
    };
    match error {
        FederationError::Target | FederationError::NoRule(_) => (StatusCode::BAD_REQUEST, "invalid_target"),
        FederationError::Token(error) if error.is_of_issuer() => {
            (StatusCode::SERVICE_UNAVAILABLE, "temporarily_unavailable")
        }
        FederationError::Token(_)
        | FederationError::Claim(_)
        | FederationError::Suspended
        | FederationError::Replayed => (StatusCode::BAD_REQUEST, "invalid_grant"),
        FederationError::Scope(_) => (StatusCode::BAD_REQUEST, "invalid_scope"),
        FederationError::Limited(_) => (StatusCode::TOO_MANY_REQUESTS, "slow_down"),
        FederationError::InvalidRule(_) | FederationError::InvalidIssuer(_) => {
            (StatusCode::INTERNAL_SERVER_ERROR, "server_error")
        }
    }
}
