//! Status, code and texts of every error of the dashboard, for the error page, the API's problems and the log.

use http::StatusCode;
use uuid::Uuid;

use super::claim_mapping::ClaimError;
use super::error::{DashboardError, SignInError};
use crate::management::{ErrorKind, ManagementError};
use crate::oidc;

/// An error as a response presents it.
pub(super) struct ErrorText {
    pub(super) status: StatusCode,
    /// Stable name of the error, for programs.
    pub(super) code: &'static str,
    /// A few words, as a heading.
    pub(super) title: &'static str,
    /// Description of the error, as sentences.
    pub(super) description: String,
    /// Advice, as sentences.
    pub(super) advice: &'static str,
}

impl DashboardError {
    /// Stable name of the error for logs. For identity providers it is more specific than the code.
    pub(super) fn reason(&self) -> &'static str {
        match self {
            Self::Provider(error) => error.reason(),
            _ => self.text().code,
        }
    }

    /// Logs a server-side failure once, with the request id that users can quote. Errors of identity providers were
    /// logged where the sign-in failed.
    pub(super) fn log(&self, id: Uuid, status: StatusCode) {
        if status.is_server_error() && !matches!(self, Self::Provider(_)) {
            let reason = self.reason();
            let cause = self.in_full();
            tracing::warn!(request_id = %id, reason, cause, "a request to the dashboard failed");
        }
    }

    /// Status, code and texts.
    #[rustfmt::skip]
    pub(super) fn text(&self) -> ErrorText {
        match self {
            Self::SignedOut => text(StatusCode::UNAUTHORIZED, "unauthenticated", "You are signed out",
                "Your session has ended, or you have not signed in yet.", "Sign in to continue."),
            Self::NotFound => text(StatusCode::NOT_FOUND, "not_found", "Page not found",
                "There is no page at this address.", "Check the address, or go back to your API keys."),
            Self::MethodNotAllowed(_) => text(StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed",
                "Method not allowed",
                "This address does not support this kind of request.", "Go back to your API keys and try from there."),
            Self::CrossSite => text(StatusCode::FORBIDDEN, "cross_site_request", "Request from another site",
                "Your browser reports that this request came from another site, so nothing was changed.",
                "If you meant to do this, do it from the pages of this dashboard."),
            Self::AmbiguousSession => text(StatusCode::BAD_REQUEST, "invalid_request", "Two sessions at once",
                "Your browser sent more than one session cookie.", "Delete this site's cookies and sign in again."),
            Self::Body => text(StatusCode::PAYLOAD_TOO_LARGE, "body_too_large", "Request too large",
                "The request body is too large, or the connection broke off.", "Try again with less data."),
            Self::BodyTimeout => text(StatusCode::REQUEST_TIMEOUT, "request_timeout", "Request timed out",
                "The request body did not arrive in time.", "Try again."),
            Self::TooManyAttempts(_) => text(StatusCode::TOO_MANY_REQUESTS, "too_many_attempts", "Too many attempts",
                "Too many attempts to sign in came from your address.", "Wait a minute, then try again."),
            Self::TooManyRequests(_) => text(StatusCode::TOO_MANY_REQUESTS, "rate_limited", "Too many requests",
                "You have sent too many requests in a short time.", "Wait a moment, then try again."),
            Self::SignIn(error) => sign_in_text(*error),
            Self::Provider(error) => provider_text(error),
            Self::Management(error) => management_text(error),
            Self::Randomness(_) | Self::Render(_) | Self::Internal => text(
                StatusCode::INTERNAL_SERVER_ERROR, "internal_error", "Internal error",
                "The dashboard failed. Your change may or may not have been made.",
                "Check whether it was made before you try again, and give the operator of this gateway the request \
                 ID."),
        }
    }
}

fn text(
    status: StatusCode,
    code: &'static str,
    title: &'static str,
    description: &str,
    advice: &'static str,
) -> ErrorText {
    ErrorText { status, code, title, description: description.to_owned(), advice }
}

#[rustfmt::skip]
fn sign_in_text(error: SignInError) -> ErrorText {
    let (status, code, description) = match error {
        SignInError::NoState => (StatusCode::BAD_REQUEST, "no_state",
            "The response of the identity provider is incomplete."),
        SignInError::UnknownState => (StatusCode::BAD_REQUEST, "unknown_state",
            "This sign-in took too long, or is finished already."),
        SignInError::OtherBrowser => (StatusCode::BAD_REQUEST, "other_browser",
            "This sign-in began in another browser, or this browser does not store cookies."),
        SignInError::OtherProvider => (StatusCode::BAD_REQUEST, "other_provider",
            "This sign-in began with another identity provider."),
        SignInError::Claims(ClaimError::NoEmail) => (StatusCode::FORBIDDEN, "no_email",
            "The identity provider did not send your email address."),
        SignInError::Claims(ClaimError::Unverified) => (StatusCode::FORBIDDEN, "unverified_email",
            "The identity provider has not verified your email address."),
    };
    let advice = match error {
        SignInError::Claims(_) => "Ask an administrator of your organization.",
        _ => "Sign in again from this site.",
    };
    text(status, code, "Sign-in failed", description, advice)
}

fn provider_text(error: &oidc::Error) -> ErrorText {
    let (status, title, description, advice) = match error.fault() {
        oidc::Fault::ProviderUnavailable => (
            StatusCode::SERVICE_UNAVAILABLE,
            "The identity provider is unavailable",
            "It cannot be reached, or its response is not usable.",
            "Try again in a few minutes. If it is urgent, ask the operator of this gateway for a sign-in link.",
        ),
        oidc::Fault::Declined => (
            StatusCode::FORBIDDEN,
            "You were not signed in",
            "The sign-in was declined at the identity provider.",
            "Sign in again, or ask an administrator of your organization.",
        ),
        oidc::Fault::Browser => (
            StatusCode::BAD_REQUEST,
            "Sign-in failed",
            "Your browser returned from the identity provider with an invalid response.",
            "Sign in again from this site.",
        ),
        oidc::Fault::Gateway => (
            StatusCode::INTERNAL_SERVER_ERROR,
            "Sign-in failed",
            "This gateway is not configured correctly for the identity provider.",
            "Give the operator of this gateway the request ID.",
        ),
        oidc::Fault::Provider => (
            StatusCode::BAD_GATEWAY,
            "Sign-in failed",
            "The response of the identity provider about you is not valid.",
            "Sign in again. If that does not help, give the operator of this gateway the request ID.",
        ),
    };
    text(status, error.reason(), title, description, advice)
}

fn management_text(error: &ManagementError) -> ErrorText {
    let (title, advice) = match error {
        ManagementError::StateUnavailable(_) | ManagementError::NotAcknowledged(_) | ManagementError::StateLost => (
            "The gateway's state is unavailable",
            "Try again in a moment. If you were changing something, check first whether it was done.",
        ),
        ManagementError::Unconfirmed(_) => {
            ("The change is made, and not confirmed", "Look whether it holds, and repeat it if it does not.")
        }
        ManagementError::HandedOver => {
            ("The gateway is being replaced", "Go back and try again: the other process serves already.")
        }
        ManagementError::Audit(_) => {
            ("The audit journal is unavailable", "Try again in a moment, or tell the operator of this gateway.")
        }
        ManagementError::JournalUnreadable(_) => {
            ("The audit records are unavailable", "Try again in a minute, or tell the operator of this gateway.")
        }
        ManagementError::InvalidLink => ("This sign-in link is not valid", "Ask for a new one."),
        ManagementError::NoMembership(_) => {
            ("You are not a member of an organization here", "Ask an administrator of your organization.")
        }
        ManagementError::Rotated { .. } => (
            "The key was rotated meanwhile",
            "Look at the key, and ask who rotated it for the new secret. Rotate it again only if that one is lost.",
        ),
        ManagementError::KeyCreationLimited(_) => {
            (kind_title(error.kind()), "Nothing was changed. Keys that you have go on working.")
        }
        error => (kind_title(error.kind()), "Go back and try again."),
    };
    text(error.kind().status(), error.code(), title, &error.for_people(), advice)
}

fn kind_title(kind: ErrorKind) -> &'static str {
    match kind {
        ErrorKind::Invalid => "Invalid request",
        ErrorKind::Unprocessable => "Records that do not belong together",
        ErrorKind::NotAllowed => "Not allowed",
        ErrorKind::NotFound => "Not found",
        ErrorKind::Conflict => "Not possible in the current state",
        ErrorKind::Stale => "Changed meanwhile",
        ErrorKind::TooMany => "Too many requests at a time",
        ErrorKind::RateLimited => "Too many in a short time",
        ErrorKind::Unavailable => "Unavailable at the moment",
    }
}
