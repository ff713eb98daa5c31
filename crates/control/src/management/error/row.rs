//! Rows of the table of errors: what an error means for those who get it, by status, code and texts.

use http::StatusCode;

/// Seconds of `Retry-After` of a 503: the end of an outage cannot be predicted.
pub(super) const RETRY_SOON: u64 = 5;
/// Seconds of `Retry-After` of a 429 for too much at a time.
const RETRY_READ: u64 = 1;

/// Kind of an error: decides the HTTP status, and with it the exit code of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorKind {
    /// The request is invalid: 400.
    Invalid,
    /// The request has no credential, or one that is not valid: 401.
    Unauthenticated,
    /// The actor may not do this: 403.
    NotAllowed,
    /// The request names something that does not exist: 404.
    NotFound,
    /// The path does not support the method: 405.
    MethodNotAllowed,
    /// The body did not arrive in time: 408.
    TimedOut,
    /// The request conflicts with the present state: 409.
    Conflict,
    /// The record is another one than the request depends on: 412.
    Stale,
    /// The body is too large: 413.
    TooLarge,
    /// The body is of another media type: 415.
    MediaType,
    /// The request is valid by itself, and names records that do not belong together: 422.
    Unprocessable,
    /// The actor asks for too much at a time: 429.
    TooMany,
    /// The actor has done this too often: 429.
    RateLimited,
    /// The gateway failed: 500.
    Internal,
    /// The response of an identity provider is not valid: 502.
    Provider,
    /// The state, the journal or an identity provider is unavailable: 503.
    Unavailable,
}

impl ErrorKind {
    /// The HTTP status of the kind (RFC 9110 section 15).
    pub fn status(self) -> StatusCode {
        self.status_and_title().0
    }

    /// The status, and the heading of a page for an error of the kind.
    #[rustfmt::skip]
    const fn status_and_title(self) -> (StatusCode, &'static str) {
        match self {
            Self::Invalid => (StatusCode::BAD_REQUEST, "Invalid request"),
            Self::Unauthenticated => (StatusCode::UNAUTHORIZED, "You are signed out"),
            Self::NotAllowed => (StatusCode::FORBIDDEN, "Not allowed"),
            Self::NotFound => (StatusCode::NOT_FOUND, "Not found"),
            Self::MethodNotAllowed => (StatusCode::METHOD_NOT_ALLOWED, "Method not allowed"),
            Self::TimedOut => (StatusCode::REQUEST_TIMEOUT, "Request timed out"),
            Self::Conflict => (StatusCode::CONFLICT, "Not possible in the current state"),
            Self::Stale => (StatusCode::PRECONDITION_FAILED, "Changed meanwhile"),
            Self::TooLarge => (StatusCode::PAYLOAD_TOO_LARGE, "Request too large"),
            Self::MediaType => (StatusCode::UNSUPPORTED_MEDIA_TYPE, "Unsupported media type"),
            Self::Unprocessable => (StatusCode::UNPROCESSABLE_ENTITY, "Records that do not belong together"),
            Self::TooMany => (StatusCode::TOO_MANY_REQUESTS, "Too many requests at a time"),
            Self::RateLimited => (StatusCode::TOO_MANY_REQUESTS, "Too many in a short time"),
            Self::Internal => (StatusCode::INTERNAL_SERVER_ERROR, "Internal error"),
            Self::Provider => (StatusCode::BAD_GATEWAY, "Sign-in failed"),
            Self::Unavailable => (StatusCode::SERVICE_UNAVAILABLE, "Unavailable at the moment"),
        }
    }
}

/// Row of an error: all that it means besides its text.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    /// The kind, and so the status.
    pub kind: ErrorKind,
    /// Stable name for programs. Empty for an error of an identity provider, which has a reason in the log instead.
    pub code: &'static str,
    /// `error` of the response to a token exchange (RFC 6749, section 5.2); `None`: the gateway's own failure.
    exchange: Option<&'static str>,
    /// Seconds until the same call can succeed, where the kind does not say it.
    pub(super) wait: Option<u64>,
    /// Sentences for signed-in people; `None`: the error's text.
    pub(super) for_people: Option<&'static str>,
    /// Heading of the error page: a few words.
    pub(crate) title: &'static str,
    /// Sentences of the error page; `None`: those for people.
    pub(super) description: Option<&'static str>,
    /// Advice on the error page, as sentences.
    pub(crate) advice: &'static str,
    /// `true` if the error page leads to the sign-in page, and not to the API keys.
    pub(crate) leads_to_sign_in: bool,
}

pub(super) const fn row(kind: ErrorKind, code: &'static str) -> Row {
    let (_, title) = kind.status_and_title();
    let advice = "Go back and try again.";
    let (exchange, wait, for_people, description) = (None, None, None, None);
    Row { kind, code, exchange, wait, for_people, title, description, advice, leads_to_sign_in: false }
}

impl Row {
    /// The status and the code of a response with the error.
    pub fn status_and_code(&self) -> (StatusCode, &'static str) {
        let status = self.exchange.map_or(self.kind.status(), |error| self.exchange_status(error));
        (status, self.code)
    }

    /// The status and `error` of the response to a token exchange.
    pub(crate) fn status_and_exchange_error(&self) -> (StatusCode, &'static str) {
        match (self.exchange, self.kind) {
            (Some(error), _) => (self.exchange_status(error), error),
            (None, ErrorKind::Unavailable) => (StatusCode::SERVICE_UNAVAILABLE, "temporarily_unavailable"),
            (None, _) => (StatusCode::INTERNAL_SERVER_ERROR, "server_error"),
        }
    }

    /// Returns whether a token exchange tells a client of the error, and not of a failure of the gateway.
    pub(crate) fn is_of_exchange(&self) -> bool {
        self.exchange.is_some()
    }

    /// RFC 6749 wants 400 for all that is wrong with a grant, whatever the kind of the error.
    fn exchange_status(&self, error: &str) -> StatusCode {
        let is_of_grant = matches!(error, "invalid_grant" | "invalid_target" | "invalid_scope");
        if is_of_grant { StatusCode::BAD_REQUEST } else { self.kind.status() }
    }

    /// Seconds after which a call can succeed, for `Retry-After`.
    pub(super) fn retry_after(&self) -> Option<u64> {
        self.wait.or(match self.kind {
            ErrorKind::TooMany | ErrorKind::RateLimited => Some(RETRY_READ),
            ErrorKind::Unavailable => Some(RETRY_SOON),
            _ => None,
        })
    }

    pub(super) const fn exchange(self, error: &'static str) -> Self {
        Self { exchange: Some(error), ..self }
    }

    pub(super) const fn wait(self, seconds: u64) -> Self {
        Self { wait: Some(seconds), ..self }
    }

    /// With other sentences for people than the text, in the API and on pages.
    pub(super) const fn for_people(self, sentences: &'static str) -> Self {
        Self { for_people: Some(sentences), ..self }
    }

    /// With an error page of its own.
    pub(super) const fn page(self, title: &'static str, description: &'static str, advice: &'static str) -> Self {
        Self { description: Some(description), ..self.advice(title, advice) }
    }

    /// With the heading and the advice of the error page.
    pub(super) const fn advice(self, title: &'static str, advice: &'static str) -> Self {
        Self { title, advice, ..self }
    }

    pub(super) const fn sign_in(self) -> Self {
        Self { leads_to_sign_in: true, ..self }
    }
}
