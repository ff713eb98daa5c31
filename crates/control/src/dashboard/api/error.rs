//! Errors of the API, as problems (`application/problem+json`, RFC 9457).

use http::StatusCode;
use uuid::Uuid;

use crate::dashboard::error::DashboardError;
use crate::dashboard::response::{self, DashboardResponse};
use crate::json_input::{InputError, add_accept_patch};
use crate::management::ManagementError;
use crate::request::RouteError;
use domain::problem::{self, Problem, sentence};

/// Advice of every 429.
const BACKOFF: &str = "Wait for the seconds in Retry-After, then retry with exponential backoff.";

/// Reason why the API does not do what a request asks for.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ApiError {
    #[error(transparent)]
    Route(#[from] RouteError),
    #[error("this requires a web session, by its cookie: sign in on the dashboard")]
    NoSession,
    #[error("API keys do not manage keys: this requires a web session, by its cookie; sign in on the dashboard")]
    KeyNotAccepted,
    #[error("this session has ended: sign in again")]
    SessionEnded,
    /// A query or a body that cannot be read.
    #[error(transparent)]
    Input(#[from] InputError),
    #[error("there is no key with this id; a key's id is the nine characters after `sk_live_`")]
    NoKey,
    #[error("there is no session with this id")]
    NoSuchSession,
    #[error("there is no token with this id; a token's id is the ten characters after `kgm_`")]
    NoSuchToken,
    /// An error that pages have as well.
    #[error(transparent)]
    Dashboard(#[from] DashboardError),
}

impl ApiError {
    fn status_and_code(&self) -> (StatusCode, &'static str) {
        match self {
            Self::Route(error) => error.status_and_code(),
            Self::NoSession | Self::KeyNotAccepted => (StatusCode::UNAUTHORIZED, "unauthenticated"),
            Self::SessionEnded => (StatusCode::UNAUTHORIZED, "invalid_session"),
            Self::Input(error) => error.status_and_code(),
            Self::NoKey => (StatusCode::NOT_FOUND, "no_such_key"),
            Self::NoSuchSession => (StatusCode::NOT_FOUND, "no_such_session"),
            Self::NoSuchToken => (StatusCode::NOT_FOUND, "no_such_token"),
            Self::Dashboard(error) => (error.text().status, error.text().code),
        }
    }

    /// The status of the response.
    pub(crate) fn status(&self) -> StatusCode {
        self.status_and_code().0
    }

    /// The problem's `detail`: what happened and what to do, as sentences, without internal causes.
    fn detail(&self) -> String {
        match self {
            // The pages' advice is for persons, who do not see header fields.
            Self::Dashboard(error) if error.text().status == StatusCode::TOO_MANY_REQUESTS => {
                format!("{} {BACKOFF}", error.text().description)
            }
            // The text of an operation's error already says what to do. The page's advice is about pages.
            Self::Dashboard(error @ DashboardError::Management(_)) => error.text().description,
            Self::Dashboard(error) => format!("{} {}", error.text().description, error.text().advice),
            error => sentence(&error.to_string()),
        }
    }

    /// The response to the request with this id. Logs server-side failures.
    pub(crate) fn response(&self, id: Uuid) -> DashboardResponse {
        let (status, code) = self.status_and_code();
        if let Self::Dashboard(error) = self {
            error.log(id, status);
        }
        let problem = Problem::new(status, code, self.detail()).with_request_id(id.to_string());
        let response = response::build(status, problem::MEDIA_TYPE, problem.to_json());
        let mut response = match self {
            Self::Route(RouteError::MethodNotAllowed(methods)) => response::with_allow(response, methods),
            _ if status == StatusCode::UNAUTHORIZED => response::with_challenge(response),
            Self::Dashboard(error) => response::with_retry_after(response, error.retry_after()),
            _ => response,
        };
        add_accept_patch(response.headers_mut(), matches!(self, Self::Input(InputError::PatchMediaType)));
        response
    }
}

impl From<ManagementError> for ApiError {
    fn from(error: ManagementError) -> Self {
        Self::Dashboard(error.into())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::super::DOCUMENT;
    use super::*;
    use crate::api_document;
    use crate::management::ManagementError as Error;
    use domain::page::{InvalidCursor, InvalidPageLimit};
    use state::Unavailable;

    /// Errors of the transport, sent before the dashboard sees a request.
    const TRANSPORT: [(u16, &str); 3] = [(400, "malformed_request"), (414, "target_too_long"), (431, "head_too_large")];

    fn errors() -> Vec<ApiError> {
        let id = "aB3dE6gH9".parse().unwrap();
        let own = [ApiError::NoSession, ApiError::KeyNotAccepted, ApiError::SessionEnded, InputError::MediaType.into()];
        let own = own.into_iter().chain([ApiError::NoKey, ApiError::NoSuchSession, ApiError::NoSuchToken]);
        let own = own.chain([InputError::Query(String::new()).into(), InputError::Body(String::new()).into()]);
        let failed = [
            DashboardError::CrossSite,
            DashboardError::AmbiguousSession,
            DashboardError::Body,
            DashboardError::BodyTimeout,
            DashboardError::Internal,
            DashboardError::TooManyRequests(1),
        ];
        let errors = [
            Error::InvalidName(domain::names::InvalidName::Characters),
            Error::OverlapTooLong,
            Error::NotAllowed,
            Error::NoOrg(String::new()),
            Error::NoUser(String::new()),
            Error::NoKey(id),
            Error::NoSession(String::new()),
            Error::NoToken("aB3dE6gH9j".parse().unwrap()),
            Error::InvalidToken("a token needs one scope at least"),
            Error::TokenExceeds("administrators give no orgs:write and no state:export"),
            Error::TooManyTokens(100),
            Error::Revoked(id),
            Error::InvalidKeyPolicy(domain::key::policy::InvalidKeyPolicy::NoSlot),
            Error::BeyondOwner("a".parse().unwrap()),
            Error::Widened(id),
            Error::DisabledByOperator(id),
            Error::OrgSuspended,
            Error::Rotated { key: id, by: None, at: None },
            Error::Taken("id"),
            Error::TooManyKeys(100),
            Error::KeyCreationLimited(180),
            Error::PageLimit(InvalidPageLimit),
            Error::Cursor(InvalidCursor),
            Error::TooManyReads,
            Error::JournalUnreadable(std::io::ErrorKind::NotFound.into()),
            Error::StateUnavailable(Unavailable::TimedOut),
            Error::HandedOver,
            Error::Randomness(getrandom::Error::UNSUPPORTED),
        ];
        own.chain(failed.map(ApiError::from)).chain(errors.map(ApiError::from)).collect()
    }

    #[test]
    fn errors_are_those_of_the_document() {
        let code = |error: &ApiError| {
            let (status, code) = error.status_and_code();
            (status.as_u16(), code.to_owned())
        };
        let mut actual: BTreeSet<_> = errors().iter().map(code).collect();
        actual.extend(TRANSPORT.map(|(status, code)| (status, code.to_owned())));
        assert_eq!(api_document::errors(DOCUMENT), actual);
    }

    #[test]
    fn every_429_asks_for_exponential_backoff_and_has_retry_after() {
        let limited = errors().into_iter().filter(|error| error.status_and_code().0 == StatusCode::TOO_MANY_REQUESTS);
        let limited: Vec<ApiError> = limited.collect();
        assert_eq!(limited.len(), 3);
        for error in limited {
            assert!(error.detail().ends_with(BACKOFF), "{}", error.detail());
            assert!(error.response(Uuid::nil()).headers().contains_key(http::header::RETRY_AFTER));
        }
    }

    #[test]
    fn details_are_sentences_without_hints_to_the_command_line() {
        for error in errors() {
            let detail = error.detail();
            assert!(detail.ends_with('.') && !detail.contains("keygate "), "{detail}");
            assert!(detail.chars().next().is_some_and(|first| !first.is_lowercase()), "{detail}");
        }
    }
}
