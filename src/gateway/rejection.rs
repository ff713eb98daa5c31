//! Every "no" of the gateway, as `application/problem+json` (RFC 9457): one exhaustive match.

use bytes::Bytes;
use http::header::{CONNECTION, CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use http::{HeaderMap, HeaderValue, Response, StatusCode};
use uuid::Uuid;

use super::rate_limit::{self, RateLimitFields, Wait};
use crate::admission::{Denial, Route};
use crate::identity::AuthMethod;
use crate::problem::{self, Problem};
use crate::state::Refusal;
use crate::transport::{BodyError, HeadError};
use crate::upstream::SendError;

const QUOTA_EXCEEDED: &str = "https://iana.org/assignments/http-problem-types#quota-exceeded";
const CLOSE: HeaderValue = HeaderValue::from_static("close");
const REDUCED_CAPACITY: &str = "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity";
/// When to come back where nobody can know: soon, but not at once.
const RETRY_SOON: u32 = 1;

/// Why a request is answered by the gateway itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Reason {
    Unauthenticated,
    InvalidRequest(&'static str),
    InvalidToken,
    InvalidSession,
    CrossSite,
    OrgSuspended,
    InsufficientScope(String),
    NotFound,
    RateLimited(AuthMethod),
    TooManyInFlight,
    /// Too many attempts with bad keys; another in so many seconds.
    TooManyAttempts(u64),
    Malformed,
    Expectation,
    HeadTooLarge,
    TargetTooLong,
    BodyTooLarge,
    TooSlow,
    Internal,
    StateUnavailable,
    AuditUnavailable,
    UpstreamUnavailable,
    UpstreamFailed,
    UpstreamTimedOut,
}

/// A "no", and where the caller stands when it is an authenticated one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Rejection {
    pub(super) reason: Reason,
    pub(super) fields: Option<RateLimitFields>,
}

/// The words of a "no". The same for unknown, malformed and revoked keys: the difference is in the audit record.
struct Words {
    status: StatusCode,
    code: &'static str,
    detail: &'static str,
}

impl Reason {
    #[rustfmt::skip]
    fn words(&self) -> Words {
        let words = |status, code, detail| Words { status, code, detail };
        match self {
            Self::Unauthenticated => words(StatusCode::UNAUTHORIZED, "unauthenticated",
                "This request needs an API key: send it as 'Authorization: Bearer <API_KEY>'."),
            Self::InvalidRequest(detail) => words(StatusCode::BAD_REQUEST, "invalid_request", detail),
            Self::InvalidToken => words(StatusCode::UNAUTHORIZED, "invalid_token",
                "This API key is not valid. Check that it is complete, or ask an administrator of your organization."),
            Self::InvalidSession => words(StatusCode::UNAUTHORIZED, "invalid_session",
                "Your session has ended. Sign in again, or send an API key as 'Authorization: Bearer <API_KEY>'."),
            Self::CrossSite => words(StatusCode::FORBIDDEN, "cross_site_request",
                "A session may only be used by pages of this origin, and this request does not say that it comes from one."),
            Self::OrgSuspended => words(StatusCode::FORBIDDEN, "insufficient_scope",
                "Your organization is suspended. Ask the operator of this service."),
            Self::InsufficientScope(_) => words(StatusCode::FORBIDDEN, "insufficient_scope",
                "The user that this request acts as lacks the permission that it needs."),
            Self::NotFound => words(StatusCode::NOT_FOUND, "not_found",
                "There is nothing here for this method and path."),
            Self::RateLimited(AuthMethod::Session) => words(StatusCode::TOO_MANY_REQUESTS, "rate_limited",
                "You have used up the requests of your sessions. Come back after the seconds in Retry-After."),
            Self::RateLimited(_) => words(StatusCode::TOO_MANY_REQUESTS, "rate_limited",
                "This API key has used up its requests. Come back after the seconds in Retry-After."),
            Self::TooManyInFlight => words(StatusCode::TOO_MANY_REQUESTS, "too_many_in_flight",
                "Your organization has as many requests in flight as it may. Wait for some of them to end."),
            Self::TooManyAttempts(_) => words(StatusCode::TOO_MANY_REQUESTS, "too_many_attempts",
                "Too many invalid API keys came from your address. Valid keys are not affected."),
            Self::Expectation => words(StatusCode::EXPECTATION_FAILED, "expectation_failed",
                "This request expects something other than 100-continue."),
            Self::Internal => words(StatusCode::INTERNAL_SERVER_ERROR, "internal_error",
                "The gateway failed. The request may or may not have been carried out."),
            Self::Malformed => words(StatusCode::BAD_REQUEST, "malformed_request",
                "This is not a well-formed HTTP request."),
            Self::HeadTooLarge => words(StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE, "head_too_large",
                "The header fields of this request are too many or too large."),
            Self::TargetTooLong => words(StatusCode::URI_TOO_LONG, "target_too_long",
                "The path and query of this request are too long."),
            Self::BodyTooLarge => words(StatusCode::PAYLOAD_TOO_LARGE, "body_too_large",
                "The body of this request is too large."),
            Self::TooSlow => words(StatusCode::REQUEST_TIMEOUT, "request_timeout",
                "This request did not arrive in time."),
            Self::StateUnavailable => words(StatusCode::SERVICE_UNAVAILABLE, "state_unavailable",
                "API keys cannot be checked at the moment. Try again soon."),
            Self::AuditUnavailable => words(StatusCode::SERVICE_UNAVAILABLE, "audit_unavailable",
                "This request cannot be recorded at the moment, so it is not served. Try again soon."),
            Self::UpstreamUnavailable => words(StatusCode::SERVICE_UNAVAILABLE, "upstream_unavailable",
                "The service behind this gateway cannot be reached at the moment. Try again soon."),
            Self::UpstreamFailed => words(StatusCode::BAD_GATEWAY, "upstream_failed",
                "The service behind this gateway broke off or answered badly."),
            Self::UpstreamTimedOut => words(StatusCode::GATEWAY_TIMEOUT, "upstream_timeout",
                "The service behind this gateway did not answer in time."),
        }
    }

    fn problem_type(&self) -> &'static str {
        match self {
            Self::RateLimited(_) | Self::TooManyInFlight => QUOTA_EXCEEDED,
            Self::StateUnavailable => REDUCED_CAPACITY,
            _ => problem::ABOUT_BLANK,
        }
    }

    fn violated_policy(&self) -> Option<&'static str> {
        match self {
            Self::RateLimited(method) => Some(rate_limit::policy_of(*method)),
            Self::TooManyInFlight => Some("org"),
            _ => None,
        }
    }

    fn wait(&self) -> Wait {
        match self {
            Self::RateLimited(_) => Wait::Token,
            Self::TooManyInFlight => Wait::Slot,
            _ => Wait::None,
        }
    }

    /// The fields that go with this "no" alone.
    fn set_fields(&self, headers: &mut HeaderMap) {
        if let Some(challenge) = self.challenge() {
            headers.insert(WWW_AUTHENTICATE, challenge);
        }
        match self {
            Self::StateUnavailable | Self::AuditUnavailable | Self::UpstreamUnavailable => {
                headers.insert(RETRY_AFTER, HeaderValue::from(RETRY_SOON));
            }
            Self::TooManyAttempts(seconds) => {
                headers.insert(RETRY_AFTER, HeaderValue::from(*seconds));
                headers.insert(CONNECTION, CLOSE);
            }
            Self::Malformed
            | Self::HeadTooLarge
            | Self::TargetTooLong
            | Self::BodyTooLarge
            | Self::TooSlow
            | Self::Expectation
            | Self::Internal => drop(headers.insert(CONNECTION, CLOSE)),
            _ => {}
        }
    }

    /// `WWW-Authenticate` (RFC 6750, section 3).
    fn challenge(&self) -> Option<HeaderValue> {
        let text = match self {
            Self::Unauthenticated | Self::InvalidSession => "Bearer realm=\"keygate\"",
            Self::InvalidRequest(_) => "Bearer realm=\"keygate\", error=\"invalid_request\"",
            Self::InvalidToken => "Bearer realm=\"keygate\", error=\"invalid_token\"",
            Self::OrgSuspended => "Bearer realm=\"keygate\", error=\"insufficient_scope\"",
            Self::InsufficientScope(scope) => {
                let text = format!("Bearer realm=\"keygate\", error=\"insufficient_scope\", scope=\"{scope}\"");
                return Some(HeaderValue::try_from(text).expect("permissions are visible ASCII"));
            }
            _ => return None,
        };
        Some(HeaderValue::from_static(text))
    }

    fn body(&self, words: &Words, request_id: Uuid) -> Bytes {
        let violated = self.violated_policy();
        let mut id = Uuid::encode_buffer();
        let id = &*request_id.hyphenated().encode_lower(&mut id);
        let problem = Problem {
            kind: self.problem_type().into(),
            violated_policies: violated.as_slice(),
            ..Problem::new(words.status, words.code, words.detail).with_request_id(id)
        };
        problem.to_json().into()
    }
}

impl Rejection {
    /// The response.
    pub(super) fn response(&self, request_id: Uuid) -> Response<Bytes> {
        let words = self.reason.words();
        let mut response = Response::new(self.reason.body(&words, request_id));
        *response.status_mut() = words.status;
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(problem::MEDIA_TYPE));
        if let Some(fields) = &self.fields {
            rate_limit::set(headers, fields, self.reason.wait());
        }
        self.reason.set_fields(headers);
        response
    }

    /// Why admission denied a request to this route.
    pub(super) fn of_denial(denial: &Denial, route: &Route) -> Self {
        let (reason, fields) = match denial {
            Denial::NoCredential => (Reason::Unauthenticated, None),
            Denial::BadCredential(detail) => (Reason::InvalidRequest(detail), None),
            Denial::Malformed => (Reason::InvalidToken, None),
            Denial::NoSession => (Reason::InvalidSession, None),
            Denial::CrossSite => (Reason::CrossSite, None),
            Denial::StateUnavailable => (Reason::StateUnavailable, None),
            Denial::Refused { refusal, principal, rate_limit } => {
                let method = principal.as_ref().map_or(AuthMethod::ApiKey, |principal| principal.method);
                let fields = rate_limit.map(|rate_limit| RateLimitFields::new(rate_limit, method));
                (Reason::of_refusal(*refusal, method, route), fields)
            }
        };
        Self { reason, fields }
    }
}

impl Reason {
    fn of_refusal(refusal: Refusal, method: AuthMethod, route: &Route) -> Self {
        match refusal {
            Refusal::Unknown | Refusal::Revoked | Refusal::Expired | Refusal::UserRemoved => match method {
                AuthMethod::Session => Self::InvalidSession,
                AuthMethod::ApiKey | AuthMethod::AdminSocket => Self::InvalidToken,
            },
            Refusal::OrgSuspended => Self::OrgSuspended,
            Refusal::Forbidden if !route.exists => Self::NotFound,
            Refusal::Forbidden => {
                Self::InsufficientScope(route.permission.as_ref().map(ToString::to_string).unwrap_or_default())
            }
            Refusal::RateLimited => Self::RateLimited(method),
            Refusal::TooManyInFlight => Self::TooManyInFlight,
        }
    }
}

impl From<&SendError> for Reason {
    fn from(failure: &SendError) -> Self {
        match failure {
            SendError::Unavailable => Self::UpstreamUnavailable,
            SendError::BadResponse(_) | SendError::InvalidResponse(_) | SendError::Unrepeatable => Self::UpstreamFailed,
            SendError::TimedOut(_) => Self::UpstreamTimedOut,
        }
    }
}

impl From<BodyError> for Reason {
    fn from(error: BodyError) -> Self {
        match error {
            BodyError::TooLarge => Self::BodyTooLarge,
            BodyError::TooSlow => Self::TooSlow,
            BodyError::Broken => Self::Malformed,
        }
    }
}

impl From<HeadError> for Reason {
    fn from(why: HeadError) -> Self {
        match why {
            HeadError::Malformed => Self::Malformed,
            HeadError::HeadTooLarge => Self::HeadTooLarge,
            HeadError::TargetTooLong => Self::TargetTooLong,
            HeadError::TooSlow => Self::TooSlow,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_problem_carries_what_a_caller_needs() {
        let rejection = Rejection { reason: Reason::InsufficientScope("queries:write".into()), fields: None };
        let id = Uuid::now_v7();
        let response = rejection.response(id);
        assert_eq!(response.status(), StatusCode::FORBIDDEN);
        let challenge = "Bearer realm=\"keygate\", error=\"insufficient_scope\", scope=\"queries:write\"";
        assert_eq!(response.headers()[WWW_AUTHENTICATE], challenge);
        let problem: serde_json::Value = serde_json::from_slice(response.body()).unwrap();
        assert_eq!(problem["status"], 403);
        assert_eq!(problem["code"], "insufficient_scope");
        assert_eq!(problem["request_id"], id.to_string());
        assert!(problem.get("violated-policies").is_none());
    }
}
