//! Refusals and failures of requests, each with its status, its code and its problem document (RFC 9457).

use std::borrow::Cow;

use bytes::Bytes;
use http::{HeaderName, HeaderValue, Response, StatusCode, header};
use http_body_util::Full;

use super::BodyError;
use crate::cursor::CursorError;
use crate::query::InvalidDraft;
use crate::service::ListError;
use crate::store::StoreError;
use domain::problem::{self, Problem};
use edge::transport::HeadError;

/// Seconds after which a request may find room in the history: a pass of garbage collection begins each minute.
const HISTORY_RETRY_AFTER: &str = "60";

/// A refused or failed request. Its text is the `detail` of the problem.
#[derive(Debug, thiserror::Error)]
pub(super) enum RequestError {
    #[error("this service is reached through its gateway only: {header} must be present once and be valid")]
    NoIdentity { header: HeaderName },
    #[error("there is no such resource")]
    NotFound,
    #[error("this resource supports {allow}")]
    Method { allow: &'static str },
    #[error("unknown parameter `{name}`; a list takes `cursor` and `limit`")]
    UnknownParameter { name: String },
    #[error("parameter `{name}` is given more than once")]
    RepeatedParameter { name: String },
    #[error("`limit` must be an integer of at least 1; more than 100 is served as 100")]
    Limit,
    #[error("{0}; list again without a cursor")]
    Cursor(CursorError),
    #[error("the body must be application/json, not compressed")]
    MediaType,
    #[error("the body has more than {limit} bytes")]
    TooLarge { limit: u64 },
    #[error("the body took too long")]
    Slow,
    #[error("the body broke off")]
    Broken(#[source] BodyError),
    #[error("the body is not the JSON object expected: {0}")]
    Json(#[source] serde_json::Error),
    #[error("{0}")]
    Draft(InvalidDraft),
    #[error(
        "unexpired cursors of your organization keep as many replaced and deleted queries as this service allows: \
         edits, deletions and new sequences of pages are refused until older cursors have expired"
    )]
    HistoryFull,
    #[error("the store is not available at the moment")]
    Store(#[source] StoreError),
    #[error("no cursor could be created")]
    Randomness(#[source] getrandom::Error),
}

impl RequestError {
    /// The response. Failures of the service itself are logged here, once.
    pub(super) fn response(&self, request_id: &str) -> Response<Full<Bytes>> {
        let (status, code) = self.status();
        if status.is_server_error() {
            tracing::error!(request_id, code, error = self.cause(), "request failed");
        }
        let problem = Problem::new(status, code, self.to_string()).with_request_id(request_id);
        let mut response = Response::new(Full::from(problem.to_json()));
        *response.status_mut() = status;
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(problem::MEDIA_TYPE));
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
        if let Self::Method { allow } = self {
            headers.insert(header::ALLOW, HeaderValue::from_static(allow));
        }
        if matches!(self, Self::HistoryFull) {
            headers.insert(header::RETRY_AFTER, HeaderValue::from_static(HISTORY_RETRY_AFTER));
        }
        response
    }

    fn status(&self) -> (StatusCode, &'static str) {
        match self {
            Self::NoIdentity { .. } => (StatusCode::FORBIDDEN, "no_identity"),
            Self::NotFound => (StatusCode::NOT_FOUND, "not_found"),
            Self::Method { .. } => (StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed"),
            Self::UnknownParameter { .. } | Self::RepeatedParameter { .. } | Self::Limit => {
                (StatusCode::BAD_REQUEST, "invalid_parameter")
            }
            Self::Cursor(CursorError::Invalid) => (StatusCode::BAD_REQUEST, "invalid_cursor"),
            Self::Cursor(CursorError::Expired) => (StatusCode::GONE, "expired_cursor"),
            Self::MediaType => (StatusCode::UNSUPPORTED_MEDIA_TYPE, "unsupported_media_type"),
            Self::TooLarge { .. } => (StatusCode::PAYLOAD_TOO_LARGE, "body_too_large"),
            Self::Slow => (StatusCode::REQUEST_TIMEOUT, "body_too_slow"),
            Self::Broken(_) | Self::Json(_) | Self::Draft(_) => (StatusCode::BAD_REQUEST, "invalid_body"),
            Self::HistoryFull => (StatusCode::TOO_MANY_REQUESTS, "history_full"),
            Self::Store(_) => (StatusCode::SERVICE_UNAVAILABLE, "store_unavailable"),
            Self::Randomness(_) => (StatusCode::INTERNAL_SERVER_ERROR, "internal_error"),
        }
    }

    fn cause(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Store(error) => Some(error),
            Self::Randomness(error) => Some(error),
            _ => None,
        }
    }
}

impl From<StoreError> for RequestError {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::HistoryFull => Self::HistoryFull,
            error => Self::Store(error),
        }
    }
}

impl From<ListError> for RequestError {
    fn from(error: ListError) -> Self {
        match error {
            ListError::Cursor(error) => Self::Cursor(error),
            ListError::Store(error) => error.into(),
            ListError::Randomness(error) => Self::Randomness(error),
        }
    }
}

/// The whole response, head and body, to an invalid request head.
pub fn head_error_response(why: HeadError) -> Bytes {
    let (status, code, detail): (_, _, Cow<'_, str>) = match why {
        HeadError::Malformed => (StatusCode::BAD_REQUEST, "invalid_request", "the request is not HTTP".into()),
        HeadError::Target(byte) => (StatusCode::BAD_REQUEST, "invalid_request", byte.to_string().into()),
        HeadError::HeadTooLarge => {
            (StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE, "head_too_large", "the request's head is too large".into())
        }
        HeadError::TargetTooLong => {
            (StatusCode::URI_TOO_LONG, "uri_too_long", "the request's target is too long".into())
        }
        HeadError::TooSlow => (StatusCode::REQUEST_TIMEOUT, "head_too_slow", "the request's head took too long".into()),
    };
    let body = Problem::new(status, code, detail).with_request_id(uuid::Uuid::now_v7().to_string()).to_json();
    let head = format!(
        "HTTP/1.1 {status}\r\ncontent-type: application/problem+json\r\ncontent-length: {}\r\nconnection: \
         close\r\n\r\n",
        body.len()
    );
    [head.into_bytes(), body].concat().into()
}
