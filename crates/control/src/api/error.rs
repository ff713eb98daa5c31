//! Errors of the API, as problems (`application/problem+json`, RFC 9457).

use bytes::Bytes;
use http::header::{ALLOW, RETRY_AFTER, WWW_AUTHENTICATE};
use http::{HeaderValue, Response, StatusCode};
use uuid::Uuid;

use super::mount::Mount;
use super::response::build;
use crate::json_input::{InputError, add_accept_patch};
use crate::management::{ErrorKind, ManagementError, TokenRefusal};
use crate::request::RouteError;
use domain::problem::{self, Problem, sentence};

/// `Retry-After` of 503, in seconds: the end of an outage cannot be predicted.
pub(crate) const RETRY_SOON: u64 = 5;
/// `Retry-After` of 429 for too many reads of the journal at a time, in seconds.
pub(crate) const RETRY_READ: u64 = 1;

/// Reason why the API does not do what a call asks for.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ApiError {
    #[error(transparent)]
    Route(#[from] RouteError),
    #[error("this requires a management token, as `Authorization: Bearer kgm_…`")]
    NoToken,
    #[error("this requires a web session, by its cookie: sign in on the dashboard")]
    NoSession,
    #[error("API keys do not manage keys: this requires a web session, by its cookie; sign in on the dashboard")]
    KeyNotAccepted,
    #[error("this session has ended: sign in again")]
    SessionEnded,
    #[error("the request has more than one session cookie; delete this site's cookies and sign in again")]
    AmbiguousSession,
    /// A change that another site may have caused (CSRF).
    #[error("this request came from another site, so nothing was changed")]
    CrossSite,
    #[error(transparent)]
    Refused(#[from] TokenRefusal),
    #[error("there is no key with this id; a key's id is the nine characters after `sk_live_`")]
    NoKey,
    #[error("there is no token with this id; a token's id is the ten characters after `kgm_`")]
    NoSuchToken,
    #[error("there is no session with this id")]
    NoSuchSession,
    /// With the seconds after which the next attempt is accepted.
    #[error("too many calls with wrong tokens came from this address; wait {0} seconds")]
    TooManyAttempts(u64),
    /// With the seconds after which the next call is accepted.
    #[error("this token has made too many calls; wait {0} seconds, then retry with exponential backoff")]
    TooManyCalls(u64),
    /// The same, of a person.
    #[error("you have sent too many requests in a short time; wait {0} seconds, then retry with exponential backoff")]
    TooManyRequests(u64),
    #[error("the request body is too large, or the connection broke off")]
    BodyLost,
    #[error("timed out reading the request body")]
    BodyTimeout,
    #[error(transparent)]
    Input(#[from] InputError),
    #[error(transparent)]
    Management(Box<ManagementError>),
    #[error(
        "send one `Idempotency-Key`, of 1 to 255 visible ASCII characters, with a POST that makes or changes a record"
    )]
    IdempotencyKey,
    #[error("this idempotency key was sent with another body within a day; use a new one for each call")]
    KeyReused,
    #[error("a call with this idempotency key is in progress; wait a second, then send it again")]
    InProgress,
    #[error("send one entity tag in `If-Match`, as `ETag` has it, or `*`, with the change of a record that has one")]
    IfMatch,
    #[error("there is a key with this digest already, and `If-None-Match: *` asks for none")]
    Exists,
    #[error("another program exports the state; send the call again when it is done")]
    Exporting,
    #[error("the state is larger than 128 MiB; run `keygate state export` on the machine of a gateway")]
    ExportTooLarge,
    /// The handler panicked.
    #[error("the call ended unexpectedly; see the gateway's log")]
    Internal,
}

impl ApiError {
    fn status_and_code(&self) -> (StatusCode, &'static str) {
        match self {
            Self::Route(error) => error.status_and_code(),
            Self::NoToken | Self::NoSession | Self::KeyNotAccepted => (StatusCode::UNAUTHORIZED, "unauthenticated"),
            Self::SessionEnded => (StatusCode::UNAUTHORIZED, "invalid_session"),
            Self::AmbiguousSession => (StatusCode::BAD_REQUEST, "invalid_request"),
            Self::CrossSite => (StatusCode::FORBIDDEN, "cross_site_request"),
            Self::Refused(TokenRefusal::Unknown | TokenRefusal::Expired) => (StatusCode::UNAUTHORIZED, "invalid_token"),
            Self::Refused(TokenRefusal::Address) => (StatusCode::FORBIDDEN, "address_refused"),
            Self::Refused(TokenRefusal::Certificate) => (StatusCode::FORBIDDEN, "certificate_refused"),
            Self::Refused(TokenRefusal::State(_)) => (StatusCode::SERVICE_UNAVAILABLE, "state_unavailable"),
            Self::NoKey => (StatusCode::NOT_FOUND, "no_such_key"),
            Self::NoSuchToken => (StatusCode::NOT_FOUND, "no_such_token"),
            Self::NoSuchSession => (StatusCode::NOT_FOUND, "no_such_session"),
            Self::TooManyAttempts(_) => (StatusCode::TOO_MANY_REQUESTS, "too_many_attempts"),
            Self::TooManyCalls(_) | Self::TooManyRequests(_) => (StatusCode::TOO_MANY_REQUESTS, "rate_limited"),
            Self::BodyLost => (StatusCode::PAYLOAD_TOO_LARGE, "body_too_large"),
            Self::BodyTimeout => (StatusCode::REQUEST_TIMEOUT, "request_timeout"),
            Self::Input(error) => error.status_and_code(),
            Self::Management(error) => (error.kind().status(), error.code()),
            Self::IdempotencyKey => (StatusCode::BAD_REQUEST, "invalid_idempotency_key"),
            Self::KeyReused => (StatusCode::UNPROCESSABLE_ENTITY, "idempotency_key_reused"),
            Self::InProgress => (StatusCode::CONFLICT, "call_in_progress"),
            Self::IfMatch => (StatusCode::BAD_REQUEST, "invalid_if_match"),
            Self::Exists => (StatusCode::PRECONDITION_FAILED, "key_exists"),
            Self::Exporting => (StatusCode::CONFLICT, "export_in_progress"),
            Self::ExportTooLarge => (StatusCode::CONFLICT, "export_too_large"),
            Self::Internal => (StatusCode::INTERNAL_SERVER_ERROR, "internal_error"),
        }
    }

    fn retry_after(&self) -> Option<u64> {
        match self {
            Self::TooManyAttempts(seconds) | Self::TooManyCalls(seconds) | Self::TooManyRequests(seconds) => {
                Some(*seconds)
            }
            Self::Management(error) => error.retry_after().or(match error.kind() {
                ErrorKind::TooMany | ErrorKind::RateLimited => Some(RETRY_READ),
                ErrorKind::Unavailable => Some(RETRY_SOON),
                _ => None,
            }),
            Self::Refused(TokenRefusal::State(_)) => Some(RETRY_SOON),
            Self::InProgress => Some(RETRY_READ),
            Self::Exporting => Some(RETRY_SOON),
            _ => None,
        }
    }

    /// The status of the response.
    pub(crate) fn status(&self) -> StatusCode {
        self.status_and_code().0
    }

    /// The problem's `detail`, as sentences: with all causes for the operator, and without the inside of the gateway
    /// for people.
    fn detail(&self, mount: Mount) -> String {
        match (self, mount) {
            (Self::Management(error), Mount::Socket) => sentence(&error.in_full()),
            (Self::Management(error), Mount::Browser) => error.for_people(),
            _ => sentence(&self.to_string()),
        }
    }

    /// The response to the call with this id, at a mount. Logs failures of the server.
    pub(crate) fn response(&self, id: Uuid, mount: Mount) -> Response<Bytes> {
        let (status, code) = self.status_and_code();
        // The operator has the causes in the answer.
        if status.is_server_error() && mount != Mount::Socket {
            let cause = if let Self::Management(error) = self { error.in_full() } else { self.to_string() };
            tracing::warn!(request_id = %id, code, cause, "a call of the management API failed");
        }
        let problem = Problem::new(status, code, self.detail(mount)).with_request_id(id.to_string());
        let mut response = build(status, problem::MEDIA_TYPE, problem.to_json());
        let headers = response.headers_mut();
        if let Some(seconds) = self.retry_after() {
            headers.insert(RETRY_AFTER, seconds.into());
        }
        if let Self::Route(RouteError::MethodNotAllowed(methods)) = self {
            headers.insert(ALLOW, HeaderValue::try_from(methods.as_str()).expect("methods are visible ASCII"));
        }
        if let Some(challenge) = mount.challenge().filter(|_| status == StatusCode::UNAUTHORIZED) {
            headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static(challenge));
        }
        add_accept_patch(headers, matches!(self, Self::Input(InputError::PatchMediaType)));
        response
    }
}

impl From<ManagementError> for ApiError {
    fn from(error: ManagementError) -> Self {
        if matches!(error, ManagementError::TokenEnded) {
            TokenRefusal::Unknown.into()
        } else {
            Self::Management(Box::new(error))
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use serde_json::Value;

    use super::super::document;
    use super::*;
    use crate::management::{FederationError, ManagementError as Error};
    use domain::key::KeyId;
    use domain::key::policy::InvalidKeyPolicy;
    use domain::management_token::TokenScope;
    use domain::names::{InvalidEmail, InvalidName};
    use domain::page::{InvalidCursor, InvalidPageLimit};
    use state::{InvalidFederationRule, Unavailable};

    /// Errors of the transport, sent before the API sees a request.
    const TRANSPORT: [(u16, &str); 3] = [(400, "malformed_request"), (414, "target_too_long"), (431, "head_too_large")];

    /// The errors of calls to paths that there are, by methods that these support.
    fn errors() -> Vec<ApiError> {
        let own = [
            RouteError::NotFound.into(),
            ApiError::NoToken,
            ApiError::NoSession,
            ApiError::KeyNotAccepted,
            ApiError::SessionEnded,
            ApiError::AmbiguousSession,
            ApiError::CrossSite,
            ApiError::NoSuchSession,
            ApiError::TooManyRequests(1),
            TokenRefusal::Unknown.into(),
            TokenRefusal::Address.into(),
            TokenRefusal::Certificate.into(),
            TokenRefusal::State(Unavailable::TimedOut).into(),
            ApiError::NoKey,
            ApiError::NoSuchToken,
            ApiError::TooManyAttempts(1),
            ApiError::TooManyCalls(1),
            ApiError::BodyLost,
            ApiError::BodyTimeout,
            InputError::MediaType.into(),
            InputError::Query(String::new()).into(),
            InputError::Body(String::new()).into(),
            ApiError::IdempotencyKey,
            ApiError::KeyReused,
            ApiError::InProgress,
            ApiError::IfMatch,
            ApiError::Exists,
            ApiError::Exporting,
            ApiError::ExportTooLarge,
            ApiError::Internal,
        ];
        own.into_iter().chain(of_operations().into_iter().map(ApiError::from)).collect()
    }

    fn of_operations() -> Vec<Error> {
        let id: KeyId = "aB3dE6gH9".parse().unwrap();
        vec![
            Error::InvalidName(InvalidName::Characters),
            Error::InvalidEmail(InvalidEmail(String::new())),
            Error::InvalidConcurrent,
            Error::InvalidKeyPolicy(InvalidKeyPolicy::NoSlot),
            Error::OverlapTooLong,
            Error::InvalidToken("…"),
            Error::IncompleteSecret,
            Error::PageLimit(InvalidPageLimit),
            Error::Cursor(InvalidCursor),
            Error::NoOrg(String::new()),
            Error::NoUser(String::new()),
            Error::NoKey(id),
            Error::NoSession(String::new()),
            Error::NoToken("aB3dE6gH9j".parse().unwrap()),
            Error::BeyondOwner("a".parse().unwrap()),
            Error::NoSessions,
            Error::LinksDisabled,
            Error::JournalUnreadable(std::io::ErrorKind::NotFound.into()),
            FederationError::NoRule(String::new()).into(),
            FederationError::InvalidRule(InvalidFederationRule::Name).into(),
            Error::NotAllowed,
            Error::MissingScope(TokenScope::KeysRead),
            Error::TokenExceeds("…"),
            Error::Widened(id),
            Error::DisabledByOperator(id),
            Error::SuspendedByOperator,
            Error::OrgSuspended,
            Error::NotPerson(String::new()),
            Error::NotService(String::new()),
            Error::LastAdmin,
            Error::Taken("name"),
            Error::KeyIdTaken(id),
            Error::KeyIdOfAnotherOrg { id, tag: id.tag() },
            Error::DigestTaken(None),
            Error::CreationInProgress,
            Error::Revoked(id),
            Error::Rotated { key: id, by: None, at: None },
            Error::TooManyKeys(100),
            Error::TooManyTokens(100),
            Error::KeyCreationLimited(180),
            Error::TooManyIdempotencyKeys(10_000),
            Error::Stale,
            Error::TooManyReads,
            Error::JournalBusy,
            Error::HandedOver,
            Error::Randomness(getrandom::Error::UNSUPPORTED),
        ]
    }

    /// Collects the statuses and codes that the schemas of a document allow.
    fn collect_errors(value: &Value, into: &mut BTreeSet<(u16, String)>) {
        let properties = &value["properties"];
        if let (Some(status), Some(codes)) =
            (properties["status"]["const"].as_u64(), properties["code"]["enum"].as_array())
        {
            let status = u16::try_from(status).unwrap();
            into.extend(codes.iter().map(|code| (status, code.as_str().unwrap().to_owned())));
        }
        let members = value.as_object().into_iter().flat_map(|members| members.values());
        members.chain(value.as_array().into_iter().flatten()).for_each(|member| collect_errors(member, into));
    }

    #[test]
    fn errors_are_those_of_the_document() {
        let code = |error: &ApiError| {
            let (status, code) = error.status_and_code();
            (status.as_u16(), code.to_owned())
        };
        let mut actual: BTreeSet<_> = errors().iter().map(code).collect();
        actual.extend(TRANSPORT.map(|(status, code)| (status, code.to_owned())));
        let mut described = BTreeSet::new();
        collect_errors(&serde_json::from_str(document(Mount::Socket)).unwrap(), &mut described);
        assert_eq!(described, actual);
    }

    #[test]
    fn every_429_and_503_has_retry_after() {
        for error in errors() {
            let response = error.response(Uuid::nil(), Mount::Network);
            let waits = [StatusCode::TOO_MANY_REQUESTS, StatusCode::SERVICE_UNAVAILABLE].contains(&response.status());
            let has_wait = response.headers().contains_key(RETRY_AFTER);
            assert!(has_wait || !waits, "{error}");
        }
    }

    #[test]
    fn details_for_people_are_sentences_without_commands() {
        for error in of_operations() {
            let detail = error.for_people();
            // People do not give digests.
            let is_of_digests = error.code().starts_with("key_id") || error.code().contains("digest");
            assert!(detail.ends_with('.') && (is_of_digests || !detail.contains("keygate ")), "{detail}");
            assert!(detail.chars().next().is_some_and(|first| !first.is_lowercase()), "{detail}");
        }
    }
}
