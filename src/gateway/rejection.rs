//! Responses to refused requests: `application/problem+json` (RFC 9457), made from the table of refusals.

use std::borrow::Cow;

use bytes::Bytes;
use http::header::{CONNECTION, CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Response};
use uuid::Uuid;

use super::rate_limit::{self, RateLimitFields};
use super::request::Arrival;
use crate::admission::{Ambiguity, Denial, Route, bearer, comparable};
use domain::head_fields::CredentialFields;
use domain::http_syntax::InvalidTargetByte;
use domain::identity::{AuthMethod, Permission};
use domain::problem::{self, Problem, ProblemTypes};
use domain::refusal::{Answer, Refusal};
use domain::trace_context::TraceId;
use edge::forward::InvalidHead;
use edge::transport::HeadError;
use platform::request_body::BodyError;
use platform::telemetry::ObservedRequest;
use upstream::{SendError, TimeoutKind};

/// Challenge of HTTP Basic (RFC 7617). The realm is no URL, for which clients of registries take one of `Bearer`.
const BASIC_CHALLENGE: HeaderValue = HeaderValue::from_static("Basic realm=\"keygate\", charset=\"UTF-8\"");
/// Seconds until a retry where no better time is known.
const RETRY_SOON: u64 = 1;
/// Outcome in the access log of a refusal that has none in the audit journal.
const REFUSED: &str = "refused";

/// Refusal of one request, with all that its response says about this request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Rejection<'a> {
    pub(super) refusal: Refusal,
    /// Authentication method of the caller; `ApiKey` for unknown callers.
    pub(super) method: AuthMethod,
    /// Rate-limit status of an authenticated caller.
    pub(super) rate_limit: Option<RateLimitFields>,
    /// Permission that the caller lacks.
    scope: Option<&'a Permission>,
    /// Seconds until a retry, where they were computed for this request.
    retry_after: Option<u64>,
    /// Facts of this request for the explanation; none: it is that of the table.
    facts: Option<Facts<'a>>,
    /// True if the challenge is that of HTTP Basic: clients that know it alone take another one for an error.
    asks_basic: bool,
}

/// Facts of a request that explain its refusal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Facts<'a> {
    /// A key is missing, and these are its places, where they are configured.
    Missing(KeyPlaces<'a>),
    /// A byte of the target is refused.
    Byte(InvalidTargetByte),
    /// No route leads to the path for this reason.
    Path(Ambiguity),
}

/// Reason to refuse a request before its route is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct HeadRefusal {
    pub(super) refusal: Refusal,
    /// Byte of the target that is refused, where that is the reason.
    pub(super) invalid_byte: Option<InvalidTargetByte>,
}

impl From<Refusal> for HeadRefusal {
    fn from(refusal: Refusal) -> Self {
        Self { refusal, invalid_byte: None }
    }
}

impl From<InvalidTargetByte> for HeadRefusal {
    fn from(byte: InvalidTargetByte) -> Self {
        Self { refusal: Refusal::MalformedRequest, invalid_byte: Some(byte) }
    }
}

impl From<InvalidHead> for HeadRefusal {
    fn from(error: InvalidHead) -> Self {
        match error {
            InvalidHead::Malformed => Refusal::MalformedRequest.into(),
            InvalidHead::Target(byte) => byte.into(),
            InvalidHead::Expectation => Refusal::ExpectationFailed.into(),
        }
    }
}

impl From<HeadError> for HeadRefusal {
    fn from(error: HeadError) -> Self {
        match error {
            HeadError::Malformed => Refusal::MalformedRequest.into(),
            HeadError::Target(byte) => byte.into(),
            HeadError::HeadTooLarge => Refusal::HeadTooLarge.into(),
            HeadError::TargetTooLong => Refusal::TargetTooLong.into(),
            HeadError::TooSlow => Refusal::RequestTimeout.into(),
        }
    }
}

/// Fields in which a key can be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct KeyPlaces<'a> {
    fields: &'a CredentialFields,
    /// True if `Authorization` is the upstream's.
    pass_authorization: bool,
}

impl<'a> Rejection<'a> {
    /// Rejection of an unknown caller.
    pub(super) fn new(refusal: Refusal) -> Self {
        let method = AuthMethod::ApiKey;
        Self { refusal, method, rate_limit: None, scope: None, retry_after: None, facts: None, asks_basic: false }
    }

    /// Rejection of a head.
    pub(super) fn of_head(HeadRefusal { refusal, invalid_byte }: HeadRefusal) -> Self {
        Self { facts: invalid_byte.map(Facts::Byte), ..Self::new(refusal) }
    }

    /// Rejection of an authenticated caller.
    pub(super) fn with_rate_limit(refusal: Refusal, rate_limit: RateLimitFields) -> Self {
        Self { method: rate_limit.method(), rate_limit: Some(rate_limit), ..Self::new(refusal) }
    }

    /// Rejection of an unknown caller, who may come again after so many seconds.
    pub(super) fn with_retry_after(refusal: Refusal, seconds: u64) -> Self {
        Self { retry_after: Some(seconds), ..Self::new(refusal) }
    }

    /// Rejection of a request to this route that admission denied. Keys may come in these fields.
    pub(super) fn of_denial(denial: &Denial, head: &Parts, route: &'a Route, fields: &'a CredentialFields) -> Self {
        let method = denial.principal.as_ref().map_or(AuthMethod::ApiKey, |principal| principal.method);
        let scope = route.permission.as_ref().filter(|_| denial.refusal == Refusal::Forbidden);
        let rate_limit = denial.rate_limit.clone().map(|status| RateLimitFields::new(status, method));
        let facts = match denial.refusal {
            Refusal::NoCredential if !fields.is_empty() || fields.has_basic() => {
                Some(Facts::Missing(KeyPlaces { fields, pass_authorization: route.pass_authorization }))
            }
            Refusal::AmbiguousPath => comparable(head.uri.path()).err().map(Facts::Path),
            _ => None,
        };
        let has_bearer = || bearer::parse_token(&head.headers) != Err(Refusal::NoCredential);
        let asks_basic = fields.has_basic() && !route.pass_authorization && !has_bearer();
        Self { method, rate_limit, scope, facts, asks_basic, ..Self::new(denial.refusal) }
    }

    /// Rejection of the same request for another reason.
    pub(super) fn replaced_by(self, refusal: Refusal) -> Self {
        Self { refusal, scope: None, retry_after: None, facts: None, ..self }
    }

    /// Code of the problem.
    pub(super) fn code(&self) -> &'static str {
        self.refusal.answer(self.method).code
    }

    /// Builds the response to a request, and notes its refusal.
    pub(super) fn respond_to(&self, arrival: &Arrival) -> Response<Bytes> {
        arrival.note_refusal(self.refusal, self.method);
        self.response(arrival.id, arrival.observed.as_deref(), &arrival.connection.problem_types)
    }

    /// Builds the response to the request of this id, and notes the refusal, where the request is observed. The ids of
    /// the request and of its trace are in the body only.
    pub(super) fn response(
        &self,
        request_id: Uuid,
        observed: Option<&ObservedRequest>,
        types: &ProblemTypes,
    ) -> Response<Bytes> {
        let answer = self.refusal.answer(self.method);
        if let Some(observed) = observed {
            observed.note(|facts| {
                facts.refusal = Some(answer.code);
                facts.outcome = Some(self.refusal.row().outcome.unwrap_or(REFUSED));
                facts.fail(answer.code);
            });
        }
        let kind = types.link(answer.code, self.refusal.row().problem_type);
        let trace_id = observed.and_then(ObservedRequest::trace_id);
        let mut response = Response::new(self.body(answer, kind, request_id, trace_id));
        *response.status_mut() = answer.status;
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(problem::MEDIA_TYPE));
        if let Some(rate_limit) = &self.rate_limit {
            rate_limit.write_with(headers, self.refusal.row().limit, request_id);
        }
        self.write_fields(answer, headers);
        response
    }

    fn body(&self, answer: &Answer, kind: Cow<'_, str>, request_id: Uuid, trace_id: Option<TraceId>) -> Bytes {
        let row = self.refusal.row();
        let violated = row.limit.map(|limit| rate_limit::policy_name(limit, self.method));
        let mut id = Uuid::encode_buffer();
        let id = &*request_id.hyphenated().encode_lower(&mut id);
        let problem = Problem {
            kind,
            violated_policies: violated.as_slice(),
            trace_id,
            ..Problem::new(answer.status, answer.code, self.detail(answer)).with_request_id(id)
        };
        problem.to_json().into()
    }

    /// The explanation, with the permission or the key that is missing.
    fn detail(&self, answer: &Answer) -> Cow<'static, str> {
        match self.facts {
            Some(Facts::Missing(places)) => return places.explain().into(),
            Some(Facts::Byte(byte)) => return problem::sentence(&byte.to_string()).into(),
            Some(Facts::Path(ambiguity)) => return format!("No route takes this path: it has {ambiguity}.").into(),
            None => {}
        }
        match (self.scope, self.method) {
            (None, _) => answer.detail.into(),
            (Some(scope), AuthMethod::Session) => format!("You do not have the permission `{scope}`.").into(),
            (Some(scope), _) => format!("This key's user does not have the permission `{scope}`.").into(),
        }
    }

    /// Writes the fields that this refusal has and others have not.
    fn write_fields(&self, answer: &Answer, headers: &mut HeaderMap) {
        let row = self.refusal.row();
        if let Some(challenge) = answer.challenge {
            let challenge = if self.asks_basic { BASIC_CHALLENGE } else { self.challenge(challenge) };
            headers.insert(WWW_AUTHENTICATE, challenge);
        }
        let soon = row.retries_soon.then_some(RETRY_SOON);
        if let Some(seconds) = self.retry_after.or(soon) {
            headers.insert(RETRY_AFTER, HeaderValue::from(seconds));
        }
        if row.closes_connection {
            headers.insert(CONNECTION, HeaderValue::from_static("close"));
        }
    }

    fn challenge(&self, challenge: &'static str) -> HeaderValue {
        match self.scope {
            None => HeaderValue::from_static(challenge),
            Some(scope) => {
                let challenge = format!("{challenge}, scope=\"{scope}\"");
                HeaderValue::try_from(challenge).expect("permissions are visible ASCII")
            }
        }
    }
}

impl KeyPlaces<'_> {
    /// A sentence for the client: the fields in which a key can be sent.
    fn explain(self) -> String {
        let authorization = (!self.pass_authorization).then(|| "'Authorization: Bearer <API_KEY>'".to_owned());
        let fields = self.fields.iter().map(|field| format!("'{}: <API_KEY>'", field.text()));
        let has_basic = self.fields.has_basic() && !self.pass_authorization;
        let basic = has_basic.then(|| "the password of HTTP Basic authentication".to_owned());
        let places: Vec<String> = authorization.into_iter().chain(fields).chain(basic).collect();
        let places = match places.split_last() {
            Some((last, [])) => last.clone(),
            Some((last, others)) => format!("{} or {last}", others.join(", ")),
            None => unreachable!("a route that passes `Authorization` has fields for keys"),
        };
        format!("This request needs an API key: send it as {places}.")
    }
}

/// The refusal of a request whose body ended early.
pub(super) fn classify_body_error(error: BodyError) -> Refusal {
    match error {
        BodyError::TooLarge => Refusal::BodyTooLarge,
        BodyError::TooSlow => Refusal::RequestTimeout,
        BodyError::Broken => Refusal::MalformedRequest,
    }
}

/// The refusal of a request that got no response from its upstream.
pub(super) fn classify_send_error(error: &SendError) -> Refusal {
    match error {
        SendError::Unavailable => Refusal::UpstreamUnavailable,
        SendError::NoConnection(_) | SendError::Full => Refusal::UpstreamBusy,
        SendError::BadResponse(_) | SendError::TooManyFields => Refusal::UpstreamFailed,
        SendError::Refused(_) => Refusal::UpstreamRefused,
        SendError::TimedOut(TimeoutKind::Connection) => Refusal::UpstreamConnectTimeout,
        SendError::TimedOut(_) => Refusal::UpstreamTimeout,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lacking_permission_is_in_the_challenge() {
        let permission = "queries:write".parse().unwrap();
        let rejection = Rejection { scope: Some(&permission), ..Rejection::new(Refusal::Forbidden) };
        let id = Uuid::now_v7();
        let response = rejection.response(id, None, &ProblemTypes::default());
        assert_eq!(response.status(), http::StatusCode::FORBIDDEN);
        let challenge = "Bearer realm=\"keygate\", error=\"insufficient_scope\", scope=\"queries:write\"";
        assert_eq!(response.headers()[WWW_AUTHENTICATE], challenge);
        let problem: serde_json::Value = serde_json::from_slice(response.body()).unwrap();
        assert_eq!(problem["status"], 403);
        assert_eq!(problem["code"], "insufficient_scope");
        assert_eq!(problem["detail"], "This key's user does not have the permission `queries:write`.");
        assert_eq!(problem["request_id"], id.to_string());
        assert!(problem.get("violated-policies").is_none());
    }

    #[test]
    fn refusal_closes_the_connection_and_asks_for_a_retry_where_its_row_says_so() {
        let fields = |rejection: &Rejection<'_>| {
            let response = rejection.response(Uuid::now_v7(), None, &ProblemTypes::default());
            [CONNECTION, RETRY_AFTER]
                .map(|name| response.headers().get(name).map(|value| value.to_str().unwrap().to_owned()))
        };
        let value = |text: &str| Some(text.to_owned());
        assert_eq!(fields(&Rejection::with_retry_after(Refusal::TooManyAttempts, 7)), [value("close"), value("7")]);
        assert_eq!(fields(&Rejection::new(Refusal::AuditUnavailable)), [None, value("1")]);
        assert_eq!(fields(&Rejection::new(Refusal::BodyTooLarge)), [value("close"), None]);
        assert_eq!(fields(&Rejection::new(Refusal::NotFound)), [None, None]);
    }
}
