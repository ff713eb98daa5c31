//! Why there is no page, and the page that says so.

use http::StatusCode;
use uuid::Uuid;

use super::claim_mapping::ClaimError;
use super::pages::NextStep;
use super::request::DashboardRequest;
use super::response::{self, DashboardResponse};
use super::{Dashboard, public_pages};
use crate::management::{ErrorKind, ManagementError};
use crate::oidc;

/// When to come back where nobody can know, in seconds.
pub(super) const RETRY_SOON: u64 = 5;

/// Why a request is not answered with what it asked for.
#[derive(Debug, thiserror::Error)]
pub(super) enum DashboardError {
    #[error("not signed in")]
    SignedOut,
    #[error("there is nothing at this address")]
    NotFound,
    #[error("this address is not for this method")]
    Method(&'static str),
    #[error("the request does not come from a page of this origin")]
    CrossSite,
    #[error("there is more than one session cookie")]
    Ambiguous,
    #[error("the request's body is too large, or broke off")]
    Body,
    #[error("the request's body did not arrive in time")]
    Slow,
    #[error("too many attempts to sign in came from this address")]
    TooOften(u64),
    #[error(transparent)]
    SignIn(SignInError),
    #[error(transparent)]
    Provider(Box<oidc::Error>),
    #[error(transparent)]
    Management(Box<ManagementError>),
    #[error("the operating system gave no randomness")]
    Randomness(#[from] getrandom::Error),
    #[error("a page could not be written")]
    Page(#[from] askama::Error),
    #[error("the dashboard failed")]
    Internal,
}

/// Why somebody who comes back from a provider is not let in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum SignInError {
    #[error("there is no state in the answer")]
    NoState,
    #[error("no sign-in with this state is under way: it was used, has expired, or never was")]
    UnknownState,
    #[error("the sign-in was begun in another browser")]
    OtherBrowser,
    #[error("the sign-in was begun with another provider")]
    OtherProvider,
    #[error(transparent)]
    Claims(#[from] ClaimError),
}

/// What a page says of a failure.
pub(super) struct ErrorText {
    pub(super) status: StatusCode,
    pub(super) code: &'static str,
    pub(super) title: &'static str,
    /// What happened.
    pub(super) happened: String,
    /// What to do.
    pub(super) advice: &'static str,
}

impl DashboardError {
    /// Whether the way on is to sign in, and not back to the keys.
    pub(super) fn is_about_sign_in(&self) -> bool {
        match self {
            Self::SignedOut | Self::TooOften(_) | Self::SignIn(_) | Self::Provider(_) => true,
            Self::Management(error) => {
                matches!(
                    **error,
                    ManagementError::InvalidLink | ManagementError::LinksDisabled | ManagementError::NoMembership(_)
                )
            }
            _ => false,
        }
    }

    /// The stable word for logs and programs.
    pub(super) fn reason(&self) -> &'static str {
        match self {
            Self::Provider(error) => error.reason(),
            _ => self.words().code,
        }
    }

    /// What was wrong, and why, on one line.
    pub(super) fn in_full(&self) -> String {
        match self {
            Self::Provider(error) => error.in_full(),
            Self::Management(error) => error.in_full(),
            failed => failed.to_string(),
        }
    }

    /// Says once, for the operator whom somebody tells the request's id, what failed on our side. What is wrong with an
    /// identity provider was said where it was found.
    pub(super) fn log(&self, id: Uuid, status: StatusCode) {
        if status.is_server_error() && !matches!(self, Self::Provider(_)) {
            let (reason, cause) = (self.reason(), self.in_full());
            tracing::warn!(request_id = %id, reason, cause, "a request to the dashboard failed");
        }
    }

    #[rustfmt::skip]
    pub(super) fn words(&self) -> ErrorText {
        let words = |status, code, title, happened: &str, advice| {
            ErrorText { status, code, title, happened: happened.to_owned(), advice }
        };
        match self {
            Self::SignedOut => words(StatusCode::UNAUTHORIZED, "unauthenticated", "You are signed out",
                "Your session has ended, or you have not signed in yet.", "Sign in to go on."),
            Self::NotFound => words(StatusCode::NOT_FOUND, "not_found", "There is nothing here",
                "No page has this address.", "Look at the address, or go back to your API keys."),
            Self::Method(_) => words(StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", "This does not work this way",
                "This address is not for requests of this kind.", "Go back to your API keys and try from there."),
            Self::CrossSite => words(StatusCode::FORBIDDEN, "cross_site_request", "This came from another site",
                "Your browser says that another site sent this form, so nothing was done.",
                "If it was you, do the same from the pages here."),
            Self::Ambiguous => words(StatusCode::BAD_REQUEST, "invalid_request", "Your browser sent two sessions",
                "It is not clear which of them is meant.", "Delete this site's cookies and sign in again."),
            Self::Body => words(StatusCode::PAYLOAD_TOO_LARGE, "body_too_large", "That was too much",
                "What was sent is too large, or broke off on the way.", "Try again with less."),
            Self::Slow => words(StatusCode::REQUEST_TIMEOUT, "request_timeout", "That took too long",
                "What was sent did not arrive in time.", "Try again."),
            Self::TooOften(_) => words(StatusCode::TOO_MANY_REQUESTS, "too_many_attempts", "Too many attempts",
                "Too many attempts to sign in came from your address.", "Wait a minute, then try again."),
            Self::SignIn(error) => error.words(),
            Self::Provider(error) => provider_words(error),
            Self::Management(error) => management_words(error),
            Self::Randomness(_) | Self::Page(_) | Self::Internal => words(StatusCode::INTERNAL_SERVER_ERROR, "internal_error",
                "Something went wrong here", "This is our fault, not yours. What you asked for may or may not have been done.",
                "Look whether it was done before you try again, and tell whoever runs this gateway the number below."),
        }
    }
}

impl SignInError {
    #[rustfmt::skip]
    fn words(self) -> ErrorText {
        let (status, code, happened) = match self {
            Self::NoState => (StatusCode::BAD_REQUEST, "no_state", "The answer of the identity provider is incomplete."),
            Self::UnknownState => (StatusCode::BAD_REQUEST, "unknown_state",
                "This sign-in took too long, or was finished already."),
            Self::OtherBrowser => (StatusCode::BAD_REQUEST, "other_browser",
                "This sign-in was begun in another browser, or this browser keeps no cookies."),
            Self::OtherProvider => (StatusCode::BAD_REQUEST, "other_provider",
                "This sign-in was begun with another identity provider."),
            Self::Claims(ClaimError::NoEmail) => (StatusCode::FORBIDDEN, "no_email",
                "The identity provider does not say which email address you have."),
            Self::Claims(ClaimError::Unverified) => (StatusCode::FORBIDDEN, "unverified_email",
                "The identity provider has not verified your email address."),
        };
        let advice = match self {
            Self::Claims(_) => "Ask an administrator of your organization.",
            _ => "Sign in once more, from here.",
        };
        ErrorText { status, code, title: "You could not be signed in", happened: happened.to_owned(), advice }
    }
}

fn provider_words(error: &oidc::Error) -> ErrorText {
    let (status, title, happened, advice) = match error.fault() {
        oidc::Fault::ProviderUnavailable => (
            StatusCode::SERVICE_UNAVAILABLE,
            "The identity provider does not answer",
            "It cannot be reached, or does not answer as it should.",
            "Try again in a few minutes. If you cannot wait, ask whoever runs this gateway for a sign-in link.",
        ),
        oidc::Fault::Declined => (
            StatusCode::FORBIDDEN,
            "You were not signed in",
            "The identity provider says that you, or it, declined.",
            "Sign in once more, or ask an administrator of your organization.",
        ),
        oidc::Fault::Browser => (
            StatusCode::BAD_REQUEST,
            "You could not be signed in",
            "What your browser brought back from the identity provider is of no use.",
            "Sign in once more, from here.",
        ),
        oidc::Fault::Gateway => (
            StatusCode::INTERNAL_SERVER_ERROR,
            "You could not be signed in",
            "This gateway cannot speak to the identity provider as it is set up.",
            "Tell whoever runs this gateway the number below.",
        ),
        oidc::Fault::Provider => (
            StatusCode::BAD_GATEWAY,
            "You could not be signed in",
            "What the identity provider says of you cannot be trusted.",
            "Sign in once more. If that does not help, tell whoever runs this gateway the number below.",
        ),
    };
    ErrorText { status, code: error.reason(), title, happened: happened.to_owned(), advice }
}

fn management_words(error: &ManagementError) -> ErrorText {
    let (title, happened, advice) = match error {
        ManagementError::StateUnavailable(_) | ManagementError::NotAcknowledged(_) => (
            "The gateway's state does not answer",
            "What is kept of organizations and keys cannot be read or changed at the moment.".to_owned(),
            "Try again in a moment. If you were changing something, look first whether it was done.",
        ),
        ManagementError::Audit(_) => (
            "The audit journal cannot be used",
            "Every change is recorded, and at the moment nothing can be.".to_owned(),
            "Try again in a moment, or tell whoever runs this gateway.",
        ),
        ManagementError::JournalUnreadable(_) => (
            "The records cannot be read",
            "The audit journal cannot be read at the moment, or is being sorted.".to_owned(),
            "Try again in a minute, or tell whoever runs this gateway.",
        ),
        ManagementError::InvalidLink => (
            "This link is of no use any more",
            "It was used already, or is older than five minutes.".to_owned(),
            "Ask for another.",
        ),
        ManagementError::NoMembership(email) => (
            "You belong to no organization here",
            format!("You are signed in at the identity provider as {email}, whom no organization here knows."),
            "Ask an administrator of your organization.",
        ),
        error => (said(error.kind()), sentence(error), "Go back and try again."),
    };
    ErrorText { status: error.kind().status(), code: error.code(), title, happened, advice }
}

fn said(kind: ErrorKind) -> &'static str {
    match kind {
        ErrorKind::Invalid => "That cannot be done like this",
        ErrorKind::NotAllowed => "You may not do this",
        ErrorKind::NotFound => "That is not here",
        ErrorKind::Conflict => "That cannot be done now",
        ErrorKind::Unavailable => "That cannot be done at the moment",
    }
}

/// An error's text as a sentence, without what is for the command line.
fn sentence(error: &ManagementError) -> String {
    let text = error.to_string();
    let text = text.split("; see `keygate").next().unwrap_or(&text);
    let mut letters = text.chars();
    let first = letters.next().map(|first| first.to_uppercase().to_string()).unwrap_or_default();
    format!("{first}{}.", letters.as_str())
}

impl Dashboard {
    /// The page for a failure of a request that could not be read.
    pub(super) fn failed(&self, id: Uuid, failed: &DashboardError) -> DashboardResponse {
        let words = failed.words();
        failed.log(id, words.status);
        let back = if failed.is_about_sign_in() { NextStep::SignIn } else { NextStep::Keys };
        let page = public_pages::failure(&self.settings.path, &words, back, id);
        match page {
            Ok(page) => response::page(words.status, page),
            Err(_) => response::of(words.status, "text/plain; charset=utf-8", format!("{}\n", words.happened)),
        }
    }

    /// The page for a failure: for those who are signed out, the way to sign in and back.
    pub(super) fn failed_for(&self, request: &DashboardRequest, failed: &DashboardError) -> DashboardResponse {
        let answer = self.failed(request.id, failed);
        match failed {
            DashboardError::SignedOut if request.verb() == "GET" => response::see_other(&self.way_back(request)),
            DashboardError::Method(methods) => response::allowing(answer, methods),
            DashboardError::TooOften(seconds) => response::retrying(answer, *seconds),
            DashboardError::SignedOut => response::challenging(answer),
            _ if answer.status() == StatusCode::SERVICE_UNAVAILABLE => response::retrying(answer, RETRY_SOON),
            _ => answer,
        }
    }

    fn way_back(&self, request: &DashboardRequest) -> String {
        let mut query = form_urlencoded::Serializer::new(String::new());
        let mut target = format!("{}/{}", self.settings.path, request.path);
        if !request.query.is_empty() {
            let query = form_urlencoded::Serializer::new(String::new()).extend_pairs(&request.query).finish();
            target = format!("{target}?{query}");
        }
        query.append_pair("return_to", &target);
        format!("{}/sign-in?{}", self.settings.path, query.finish())
    }
}
