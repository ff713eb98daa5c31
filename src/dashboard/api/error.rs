//! Every "no" of the API, as `application/problem+json` (RFC 9457).

use http::header::ALLOW;
use http::{HeaderValue, StatusCode};
use uuid::Uuid;

use super::super::error::{DashboardError, RETRY_SOON};
use super::super::response::{self, DashboardResponse};
use super::routes::RouteError;
use crate::management::ManagementError;
use crate::problem::{self, Problem};

/// Why the API does not do what a request asks for.
#[derive(Debug, thiserror::Error)]
pub(in super::super) enum ApiError {
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
    DashboardError(#[from] DashboardError),
}

impl ApiError {
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
            Self::DashboardError(failed) => (failed.words().status, failed.words().code),
        }
    }

    /// What was wrong, and what to do, as sentences. Causes are for the log of whoever runs the gateway.
    fn detail(&self) -> String {
        match self {
            Self::DashboardError(failed @ DashboardError::Management(_)) => failed.words().happened,
            Self::DashboardError(failed) => format!("{} {}", failed.words().happened, failed.words().advice),
            refusal => sentence(&refusal.to_string()),
        }
    }

    /// The answer to the request with this id.
    pub(in super::super) fn answer(&self, id: Uuid) -> DashboardResponse {
        let (status, code) = self.status_and_code();
        let problem = Problem::new(status, code, self.detail()).with_request_id(id.to_string());
        let mut answer = response::of(status, problem::MEDIA_TYPE, problem.to_json());
        if status == StatusCode::UNAUTHORIZED {
            answer = response::challenging(answer);
        }
        if let Self::Method(methods) = self {
            let methods = HeaderValue::try_from(methods).expect("methods are visible ASCII");
            answer.headers_mut().insert(ALLOW, methods);
        }
        if let Self::DashboardError(failed) = self {
            failed.log(id, status);
        }
        if status == StatusCode::SERVICE_UNAVAILABLE { response::retrying(answer, RETRY_SOON) } else { answer }
    }
}

fn sentence(text: &str) -> String {
    let mut letters = text.chars();
    let first = letters.next().map(|first| first.to_uppercase().to_string()).unwrap_or_default();
    format!("{first}{}.", letters.as_str())
}

impl From<ManagementError> for ApiError {
    fn from(error: ManagementError) -> Self {
        Self::DashboardError(error.into())
    }
}

impl From<RouteError> for ApiError {
    fn from(astray: RouteError) -> Self {
        match astray {
            RouteError::Path => Self::Nowhere,
            RouteError::Method(methods) => Self::Method(methods),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use serde_json::Value;

    use super::super::DOCUMENT;
    use super::*;
    use crate::audit::JournalCursor;
    use crate::management::ManagementError as Error;
    use crate::state::Unavailable;

    /// What is answered before the dashboard sees a request, or while it is read: the transport's.
    const TRANSPORT: [(u64, &str); 3] = [(400, "malformed_request"), (414, "target_too_long"), (431, "head_too_large")];

    fn refusals() -> Vec<ApiError> {
        let id = "aB3dE6gH9".parse().unwrap();
        let own = [ApiError::NoSession, ApiError::KeysDoNotManage, ApiError::EndedSession, ApiError::MediaType];
        let own = own.into_iter().chain([ApiError::NoKey, ApiError::NoSuchSession]);
        let own = own.chain([ApiError::Parameter(String::new()), ApiError::Body(String::new())]);
        let failed = [
            DashboardError::CrossSite,
            DashboardError::Ambiguous,
            DashboardError::Body,
            DashboardError::Slow,
            DashboardError::Internal,
        ];
        let errors = [
            Error::InvalidName,
            Error::OverlapTooLong,
            Error::NotAllowed,
            Error::NoOrg(String::new()),
            Error::NoUser(String::new()),
            Error::NoKey(id),
            Error::NoSession(String::new()),
            Error::Revoked(id),
            Error::Taken("id"),
            Error::PageSize,
            Error::Cursor("x".parse::<JournalCursor>().unwrap_err()),
            Error::JournalUnreadable(std::io::ErrorKind::NotFound.into()),
            Error::StateUnavailable(Unavailable::TimedOut),
            Error::Randomness(getrandom::Error::UNSUPPORTED),
        ];
        own.chain(failed.map(ApiError::from)).chain(errors.map(ApiError::from)).collect()
    }

    /// The statuses and codes that a schema, or one that it refers to, allows.
    fn documented(value: &Value, into: &mut BTreeSet<(u64, String)>) {
        let properties = &value["properties"];
        if let (Some(status), Some(codes)) =
            (properties["status"]["const"].as_u64(), properties["code"]["enum"].as_array())
        {
            into.extend(codes.iter().map(|code| (status, code.as_str().unwrap().to_owned())));
        }
        let members = value.as_object().into_iter().flat_map(|members| members.values());
        members.chain(value.as_array().into_iter().flatten()).for_each(|member| documented(member, into));
    }

    #[test]
    fn every_documented_refusal_exists_and_every_refusal_is_documented() {
        let mut written = BTreeSet::new();
        documented(&serde_json::from_str(DOCUMENT).unwrap(), &mut written);
        let code = |refusal: &ApiError| {
            let (status, code) = refusal.status_and_code();
            (u64::from(status.as_u16()), code.to_owned())
        };
        let mut given: BTreeSet<_> = refusals().iter().map(code).collect();
        given.extend(TRANSPORT.map(|(status, code)| (status, code.to_owned())));
        assert_eq!(written, given);
    }

    #[test]
    fn details_are_sentences_without_what_is_for_the_command_line() {
        for refusal in refusals() {
            let detail = refusal.detail();
            assert!(detail.ends_with('.') && !detail.contains("keygate "), "{detail}");
            assert!(detail.chars().next().is_some_and(|first| !first.is_lowercase()), "{detail}");
        }
    }
}
