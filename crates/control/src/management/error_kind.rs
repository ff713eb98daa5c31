//! Kinds of errors of operations, with their HTTP statuses.

/// Kind of an error: decides the HTTP status and the exit code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorKind {
    /// The request is invalid: 400.
    Invalid,
    /// The request is valid by itself, and names records that do not belong together: 422.
    Unprocessable,
    /// The request names something that does not exist: 404.
    NotFound,
    /// The actor may not do this: 403.
    NotAllowed,
    /// The request conflicts with the present state: 409.
    Conflict,
    /// The record is another one than the request depends on: 412.
    Stale,
    /// The actor asks for too much at a time: 429.
    TooMany,
    /// The person has done this too often: 429.
    RateLimited,
    /// The state or the journal is unavailable: 503.
    Unavailable,
}

impl ErrorKind {
    /// The HTTP status of the kind (RFC 9110 section 15).
    pub fn status(self) -> http::StatusCode {
        match self {
            Self::Invalid => http::StatusCode::BAD_REQUEST,
            Self::Unprocessable => http::StatusCode::UNPROCESSABLE_ENTITY,
            Self::NotAllowed => http::StatusCode::FORBIDDEN,
            Self::NotFound => http::StatusCode::NOT_FOUND,
            Self::Conflict => http::StatusCode::CONFLICT,
            Self::Stale => http::StatusCode::PRECONDITION_FAILED,
            Self::TooMany | Self::RateLimited => http::StatusCode::TOO_MANY_REQUESTS,
            Self::Unavailable => http::StatusCode::SERVICE_UNAVAILABLE,
        }
    }
}
