//! Rows of the table of refusals, and the parts that several rows share.

use http::StatusCode;

use crate::problem::ABOUT_BLANK;

/// Row of the table: all that follows from one refusal.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    /// Answer to a caller with an API key, or without a credential.
    pub answer: Answer,
    /// Answer to a caller with a web session, where it is another one.
    pub session_answer: Option<Answer>,
    /// Type of the problem (RFC 9457, section 3.1.1).
    pub problem_type: &'static str,
    /// Exceeded limit: the response names it in `violated-policies` and says in `Retry-After` when to come back.
    pub limit: Option<Limit>,
    /// True if the response has `Retry-After: 1`: the cause may be over soon, and no better time is known.
    pub retries_soon: bool,
    /// True if the connection closes after the response: the rest of the request cannot be trusted, or is not wanted.
    pub closes_connection: bool,
    /// Outcome in the audit record; none: the request is no use of a key or session and is not recorded.
    pub outcome: Option<&'static str>,
    /// Label `result` of the metric `keygate_auth_total`; none: the credential was not judged.
    pub auth_result: Option<&'static str>,
    /// Code on the wire between the gateway and `decide.lua`; none: the state does not refuse for this reason.
    pub redis_code: Option<u64>,
}

/// Response of a refusal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answer {
    /// HTTP status.
    pub status: StatusCode,
    /// Stable name, the problem's `code`.
    pub code: &'static str,
    /// Explanation for the caller, the problem's `detail`.
    pub detail: &'static str,
    /// `WWW-Authenticate` (RFC 6750, section 3).
    pub challenge: Option<&'static str>,
}

/// Limit that a request exceeded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// Requests per time, of a key or of a user's sessions.
    Rate,
    /// Units of a budget.
    Budget,
    /// Requests in flight, of a key.
    KeyConcurrency,
    /// Requests in flight, of an organization.
    Concurrency,
}

pub(super) const REALM: &str = "Bearer realm=\"keygate\"";
pub(super) const INSUFFICIENT_SCOPE: &str = "Bearer realm=\"keygate\", error=\"insufficient_scope\"";

/// Answer to a session that cannot be used any more.
pub(super) const SESSION_ENDED: Answer = answer(
    401,
    "invalid_session",
    "Your session has ended. Sign in again, or send an API key as 'Authorization: Bearer <API_KEY>'.",
)
.challenge(REALM);

/// Row of a credential that cannot be read in one way only.
pub(super) const fn invalid_request(detail: &'static str) -> Row {
    let row = row(400, "invalid_request", detail);
    Row { auth_result: Some("malformed"), ..row.challenge("Bearer realm=\"keygate\", error=\"invalid_request\"") }
}

/// Row of a key that is not valid, or not any more.
pub(super) const fn invalid_key() -> Row {
    invalid_key_with(
        "This API key is not valid. Check that it is complete, or ask an administrator of your organization.",
    )
}

/// The same with this text.
pub(super) const fn invalid_key_with(detail: &'static str) -> Row {
    let row = row(401, "invalid_token", detail);
    let row = row.challenge("Bearer realm=\"keygate\", error=\"invalid_token\"");
    Row { session_answer: Some(SESSION_ENDED), ..row }
}

/// Row of an exceeded limit.
pub(super) const fn quota_exceeded(limit: Limit, code: &'static str, detail: &'static str) -> Row {
    let problem_type = "https://iana.org/assignments/http-problem-types#quota-exceeded";
    Row { limit: Some(limit), auth_result: Some("ok"), problem_type, ..row(429, code, detail) }
}

pub(super) const fn row(status: u16, code: &'static str, detail: &'static str) -> Row {
    row_of(answer(status, code, detail))
}

/// Row of a request that is not recorded, with nothing but an answer.
pub(super) const fn row_of(answer: Answer) -> Row {
    Row {
        answer,
        session_answer: None,
        problem_type: ABOUT_BLANK,
        limit: None,
        retries_soon: false,
        closes_connection: false,
        outcome: None,
        auth_result: None,
        redis_code: None,
    }
}

pub(super) const fn answer(status: u16, code: &'static str, detail: &'static str) -> Answer {
    let Ok(status) = StatusCode::from_u16(status) else { panic!("the table holds HTTP statuses") };
    Answer { status, code, detail, challenge: None }
}

impl Row {
    pub(super) const fn challenge(self, challenge: &'static str) -> Self {
        Self { answer: self.answer.challenge(challenge), ..self }
    }
}

impl Answer {
    const fn challenge(self, challenge: &'static str) -> Self {
        Self { challenge: Some(challenge), ..self }
    }
}
