//! Every "no" of the API, as `application/problem+json` (RFC 9457).

use http::header::{ALLOW, WWW_AUTHENTICATE};
use http::{HeaderValue, StatusCode};
use uuid::Uuid;

use super::super::answer::{self, Answer};
use super::super::failed::Failed;
use super::routes::Astray;
use crate::management::{ManagementError, Problem};

/// What a session is presented by. There is no registered scheme for cookies, and 401 must name one (RFC 9110, section
/// 11.6.1); browsers show no dialog for one that they do not know.
const CHALLENGE: HeaderValue = HeaderValue::from_static("Cookie realm=\"keygate\"");

/// Why the API does not do what a request asks for.
#[derive(Debug, thiserror::Error)]
pub(in super::super) enum Refusal {
    #[error("there is nothing at this address")]
    Nowhere,
    #[error("this address is for {0} only")]
    Method(String),
    #[error("this needs a web session, by its cookie: sign in on the dashboard")]
    NoSession,
    #[error("API keys do not manage keys: this needs a web session, by its cookie; sign in on the dashboard")]
    KeysDoNotManage,
    #[error("this session has ended: sign in again")]
    EndedSession,
    #[error("send the body as `Content-Type: application/json`")]
    MediaType,
    #[error("the query is not understood: {0}")]
    Parameter(String),
    #[error("the body is not understood: {0}")]
    Body(String),
    #[error("there is no key with this id; a key's id is the nine characters after `sk_live_`")]
    NoKey,
    #[error("there is no session with this id")]
    NoSuchSession,
    #[error(transparent)]
    Failed(#[from] Failed),
}

impl Refusal {
    fn status_and_code(&self) -> (StatusCode, &'static str) {
        match self {
            Self::Nowhere => (StatusCode::NOT_FOUND, "not_found"),
            Self::Method(_) => (StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed"),
            Self::NoSession | Self::KeysDoNotManage => (StatusCode::UNAUTHORIZED, "unauthenticated"),
            Self::EndedSession => (StatusCode::UNAUTHORIZED, "invalid_session"),
            Self::MediaType => (StatusCode::UNSUPPORTED_MEDIA_TYPE, "unsupported_media_type"),
            Self::Parameter(_) => (StatusCode::BAD_REQUEST, "invalid_parameter"),
            Self::Body(_) => (StatusCode::BAD_REQUEST, "invalid_body"),
            Self::NoKey => (StatusCode::NOT_FOUND, "no_such_key"),
            Self::NoSuchSession => (StatusCode::NOT_FOUND, "no_such_session"),
            Self::Failed(failed) => (failed.words().status, failed.words().code),
        }
    }

    /// What was wrong, and what to do, as sentences. Causes are for the log of whoever runs the gateway.
    fn detail(&self) -> String {
        match self {
            Self::Failed(failed @ Failed::Management(_)) => failed.words().happened,
            Self::Failed(failed) => format!("{} {}", failed.words().happened, failed.words().advice),
            refusal => sentence(&refusal.to_string()),
        }
    }

    /// The answer to the request with this id.
    pub(in super::super) fn answer(&self, id: Uuid) -> Answer {
        let (status, code) = self.status_and_code();
        let problem = Problem { request_id: Some(id), ..Problem::new(status, code, self.detail()) };
        let mut answer = answer::of(status, "application/problem+json", problem.to_json());
        if status == StatusCode::UNAUTHORIZED {
            answer.headers_mut().insert(WWW_AUTHENTICATE, CHALLENGE);
        }
        if let Self::Method(methods) = self {
            let methods = HeaderValue::try_from(methods).expect("methods are visible ASCII");
            answer.headers_mut().insert(ALLOW, methods);
        }
        if status == StatusCode::SERVICE_UNAVAILABLE { answer::retrying(answer) } else { answer }
    }
}

fn sentence(text: &str) -> String {
    let mut letters = text.chars();
    let first = letters.next().map(|first| first.to_uppercase().to_string()).unwrap_or_default();
    format!("{first}{}.", letters.as_str())
}

impl From<ManagementError> for Refusal {
    fn from(error: ManagementError) -> Self {
        Self::Failed(error.into())
    }
}

impl From<Astray> for Refusal {
    fn from(astray: Astray) -> Self {
        match astray {
            Astray::Path => Self::Nowhere,
            Astray::Method(methods) => Self::Method(methods),
        }
    }
}
