//! Responses of a provider: the endpoints that they come from, and what can be wrong with them.
//!
//! - No text of a provider is repeated in an error, except the `error_description` of an authorization response, the
//!   audiences of a token and the issuer of a discovery document, cut to 200 characters of printable ASCII.

use std::fmt;

use http::StatusCode;

use super::http::HttpError;

/// Endpoint of a provider that the gateway sends requests to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProviderEndpoint {
    /// The discovery document.
    Discovery,
    /// The key set (`jwks_uri`).
    Keys,
    /// The token endpoint.
    Token,
    /// The userinfo endpoint.
    Userinfo,
}

/// Defect of a provider's response.
#[derive(Debug, thiserror::Error)]
pub enum InvalidProviderResponse {
    /// The status is an error's, or a redirect's: redirects are not followed.
    #[error("the response has status {0}")]
    Status(StatusCode),
    /// The response is not HTTP, or too large.
    #[error("the response cannot be read")]
    Http(#[source] HttpError),
    /// The body is not the JSON that it should be.
    #[error("the response is not the JSON that it should be ({what} at line {line}, column {column})")]
    Json {
        /// The defect.
        what: &'static str,
        /// The line, from 1.
        line: usize,
        /// The column, from 1.
        column: usize,
    },
    /// The address of an endpoint is not encrypted.
    #[error("its `{0}` is neither https nor, for a provider on this machine, on this machine")]
    InsecureEndpoint(&'static str),
    /// The provider supports no signature algorithm that is accepted.
    #[error("it supports no asymmetric signing algorithm that is accepted")]
    SigningAlgorithms,
    /// The provider supports no client authentication that the gateway has.
    #[error("it supports neither client_secret_basic nor client_secret_post")]
    ClientAuthentication,
    /// The access token is not a bearer token.
    #[error("the access token is not a bearer token")]
    TokenType,
    /// The token response has no ID token.
    #[error("there is no ID token; register the client for OpenID Connect at the provider")]
    NoIdToken,
}

/// Reason why the query of a callback is not an authorization response.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidAuthorizationResponse {
    /// A parameter is repeated (RFC 6749, section 3.1).
    #[error("a parameter is there more than once")]
    Repeated,
    /// There is neither a code nor an error.
    #[error("there is neither a code nor an error")]
    Empty,
}

/// A text of a provider, such as the `error_description` of an authorization response, cleaned; may be empty.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ErrorDescription(String);

impl ProviderEndpoint {
    /// The reason of an invalid response of this endpoint, for logs; see [`super::Error::reason`].
    pub(super) fn invalid_reason(self) -> &'static str {
        match self {
            Self::Discovery => "discovery_invalid",
            Self::Keys => "keys_invalid",
            Self::Token => "answer_invalid",
            Self::Userinfo => "userinfo_invalid",
        }
    }
}

impl fmt::Display for ProviderEndpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Discovery => "discovery document",
            Self::Keys => "key set",
            Self::Token => "token endpoint",
            Self::Userinfo => "userinfo endpoint",
        })
    }
}

impl InvalidProviderResponse {
    /// From a parse error, without the values that its text repeats: they may be tokens.
    pub(super) fn from_json(error: &serde_json::Error) -> Self {
        let what = match error.classify() {
            serde_json::error::Category::Data => "a member is missing or of the wrong type",
            serde_json::error::Category::Eof => "it ends too early",
            _ => "a syntax error",
        };
        Self::Json { what, line: error.line(), column: error.column() }
    }
}

impl ErrorDescription {
    /// The first 200 characters, of those that RFC 6749, section 4.1.2.1, allows: no line breaks reach the log.
    pub(super) fn new(text: &str) -> Self {
        Self(text.chars().filter(|c| matches!(c, ' '..='~') && !matches!(c, '"' | '\\')).take(200).collect())
    }
}

impl fmt::Display for ErrorDescription {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() { Ok(()) } else { write!(f, ": {}", self.0) }
    }
}
