//! Why somebody could not be signed in: a word for logs, whose fault it is, and what to do.
//!
//! - No text of a provider is repeated, but for an error's description in the authorization response, cut and cleaned.
//! - A token, a code or a secret is in none of them.

use std::fmt;

use http::StatusCode;

use super::authorization_response::InvalidAuthorizationResponse;
use super::http::HttpError;
use super::settings::InvalidIssuer;
use crate::tls;

/// Why somebody could not be signed in, or sent to be.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The configured issuer is none.
    #[error("the provider's issuer {0}")]
    Issuer(#[source] InvalidIssuer),
    /// The address to come back to is none.
    #[error("the address to come back to is not a URL")]
    RedirectUri,
    /// Our side of TLS cannot be set up.
    #[error("TLS to the provider cannot be set up")]
    Tls(#[source] tls::Error),
    /// The operating system has no randomness to give.
    #[error("the operating system has no randomness to give")]
    Randomness(#[source] getrandom::Error),
    /// The provider cannot be asked now.
    #[error("the provider's {0} cannot be reached")]
    Unreachable(ProviderEndpoint, #[source] HttpError),
    /// The provider answers, and what it says is of no use.
    #[error("the provider's {0} is of no use")]
    InvalidResponse(ProviderEndpoint, #[source] InvalidProviderResponse),
    /// The provider's own document names another issuer (OpenID Connect Discovery 1.0, section 4.3).
    #[error("the discovery document names another issuer than the configured one; they must be equal to the letter")]
    IssuerMismatch,

    /// What the browser came back with is no answer to a sign-in.
    #[error("the response cannot be read")]
    AuthorizationResponse(#[source] InvalidAuthorizationResponse),
    /// It comes from another provider than the one that was asked, or does not say from which (RFC 9207).
    #[error("the response is not from the provider that was asked")]
    ResponseIssuer,
    /// The sign-in was begun at another provider.
    #[error("the sign-in was begun at another provider")]
    WrongProvider,
    /// The person, or somebody who decides for them, said no.
    #[error("the sign-in was declined at the provider{0}")]
    AccessDenied(ErrorDescription),
    /// The provider does not sign in anybody for now.
    #[error("the provider cannot sign in anybody for now ({0}){1}")]
    TemporarilyUnavailable(&'static str, ErrorDescription),
    /// The provider refused for another reason.
    #[error("the provider refused the request ({0}){1}")]
    ProviderError(&'static str, ErrorDescription),

    /// The code is not good: it was used, is too old, was made up, or another browser's (RFC 6749, section 5.2).
    #[error("the provider did not accept the code: it was used before, is too old, or was not given to this sign-in")]
    InvalidGrant,
    /// Our name or secret there is not good.
    #[error("the provider does not accept the client; check `client_id` and `client_secret`")]
    InvalidClient,

    /// The ID token cannot be read.
    #[error("the ID token is malformed")]
    Malformed,
    /// The ID token has no signature.
    #[error("the ID token is not signed")]
    Unsigned,
    /// It is signed in a way that is not accepted.
    #[error("the ID token is signed with an algorithm that is not accepted")]
    Algorithm,
    /// By a key that is not the provider's.
    #[error("the ID token is signed with a key that is not among the provider's")]
    UnknownKey,
    /// Its signature is wrong.
    #[error("the ID token's signature is wrong")]
    Signature,
    /// It is of another issuer.
    #[error("the ID token is of another issuer")]
    TokenIssuer,
    /// It is for somebody else.
    #[error("the ID token is not for this client alone")]
    Audience,
    /// It was issued to somebody else.
    #[error("the ID token was issued to another client")]
    AuthorizedParty,
    /// It is over.
    #[error("the ID token has expired; if it is new, the clocks differ")]
    Expired,
    /// It is from the future.
    #[error("the ID token is from the future: the clocks differ")]
    NotYetValid,
    /// It answers another sign-in.
    #[error("the ID token answers another sign-in")]
    Nonce,
    /// It came with another access token.
    #[error("the ID token does not belong to the access token")]
    AccessTokenHash,
    /// It names nobody.
    #[error("the ID token names nobody")]
    Subject,
    /// Userinfo is about somebody else (OpenID Connect Core 1.0, section 5.3.2).
    #[error("userinfo is about somebody else than the ID token")]
    UserinfoSubject,
}

/// Whose fault an [`Error`] is, and so what can be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The provider is away: try later (503).
    ProviderUnavailable,
    /// The person, or the provider for them, said no (403).
    Declined,
    /// What the browser brought is not good: begin again (400).
    Browser,
    /// The provider's answer is not good (502).
    Provider,
    /// Ours (500).
    Gateway,
}

/// What was asked of a provider.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProviderEndpoint {
    /// Its metadata.
    Discovery,
    /// Its keys.
    Keys,
    /// Tokens for a code.
    Token,
    /// Claims of a person.
    Userinfo,
}

/// What is wrong with an answer.
#[derive(Debug, thiserror::Error)]
pub enum InvalidProviderResponse {
    /// It is an error's, or a redirect's.
    #[error("the answer's status is {0}")]
    Status(StatusCode),
    /// It cannot be read as HTTP, or is too large.
    #[error("the answer cannot be read")]
    Http(#[source] HttpError),
    /// Not the JSON it should be.
    #[error("it is not the JSON that it should be ({what} at line {line}, column {column})")]
    Json {
        /// What kind of flaw.
        what: &'static str,
        /// Where, from 1.
        line: usize,
        /// Where, from 1.
        column: usize,
    },
    /// An address that is not to be used.
    #[error("its `{0}` is neither https nor, for a provider on this machine, on this machine")]
    Insecure(&'static str),
    /// No signature that we accept.
    #[error("it offers no asymmetric signing algorithm that is accepted")]
    Algorithms,
    /// No way to say who we are that we know.
    #[error("it offers neither client_secret_basic nor client_secret_post")]
    ClientAuthentication,
    /// Not a bearer token.
    #[error("the access token is not a bearer token")]
    TokenType,
    /// There should be an ID token.
    #[error("there is no ID token; the client must be one of OpenID Connect")]
    NoIdToken,
}

/// What a provider said of its refusal, if anything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ErrorDescription(String);

impl Error {
    /// A word for logs and metrics that stays the same.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Issuer(_) => "issuer",
            Self::RedirectUri => "redirect_uri",
            Self::Tls(_) => "tls",
            Self::Randomness(_) => "randomness",
            Self::Unreachable(..) => "unreachable",
            Self::InvalidResponse(document, _) => document.invalid(),
            Self::IssuerMismatch => "issuer_mismatch",
            Self::AuthorizationResponse(_) => "callback",
            Self::ResponseIssuer => "response_issuer",
            Self::WrongProvider => "other_provider",
            Self::AccessDenied(_) => "denied_by_user",
            Self::TemporarilyUnavailable(..) => "unavailable",
            Self::ProviderError(..) => "refused",
            Self::InvalidGrant => "code_refused",
            Self::InvalidClient => "client_refused",
            Self::Malformed => "malformed",
            Self::Unsigned => "unsigned",
            Self::Algorithm => "algorithm",
            Self::UnknownKey => "unknown_key",
            Self::Signature => "signature",
            Self::TokenIssuer => "token_issuer",
            Self::Audience => "audience",
            Self::AuthorizedParty => "authorized_party",
            Self::Expired => "expired",
            Self::NotYetValid => "not_yet",
            Self::Nonce => "nonce",
            Self::AccessTokenHash => "access_token_hash",
            Self::Subject => "subject",
            Self::UserinfoSubject => "userinfo_subject",
        }
    }

    /// Whose fault it is.
    pub fn fault(&self) -> Fault {
        match self {
            Self::Unreachable(..) | Self::TemporarilyUnavailable(..) => Fault::ProviderUnavailable,
            Self::AccessDenied(_) => Fault::Declined,
            Self::AuthorizationResponse(_) | Self::ResponseIssuer | Self::WrongProvider | Self::InvalidGrant => {
                Fault::Browser
            }
            Self::Issuer(_) | Self::RedirectUri | Self::Tls(_) | Self::Randomness(_) => Fault::Gateway,
            _ => Fault::Provider,
        }
    }

    /// What is wrong, and why, on one line.
    pub fn in_full(&self) -> String {
        let mut text = self.to_string();
        let mut source = std::error::Error::source(self);
        while let Some(error) = source {
            text.push_str(&format!(": {error}"));
            source = error.source();
        }
        text
    }

    /// Whether other keys of the provider could make the token good.
    pub(super) fn is_of_keys(&self) -> bool {
        matches!(self, Self::UnknownKey | Self::Signature)
    }
}

impl ProviderEndpoint {
    fn invalid(self) -> &'static str {
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
            Self::Token => "token endpoint's answer",
            Self::Userinfo => "userinfo",
        })
    }
}

impl InvalidProviderResponse {
    /// What JSON is not as it should be; without the values that a parser likes to repeat.
    pub(super) fn of_json(error: &serde_json::Error) -> Self {
        let what = match error.classify() {
            serde_json::error::Category::Data => "a member is missing or of the wrong type",
            serde_json::error::Category::Eof => "it ends too early",
            _ => "a syntax error",
        };
        Self::Json { what, line: error.line(), column: error.column() }
    }
}

impl ErrorDescription {
    /// Its first 200 characters, of those that may be in it (RFC 6749, section 4.1.2.1).
    pub(super) fn of(text: &str) -> Self {
        Self(text.chars().filter(|c| matches!(c, ' '..='~') && !matches!(c, '"' | '\\')).take(200).collect())
    }
}

impl fmt::Display for ErrorDescription {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() { Ok(()) } else { write!(f, ": {}", self.0) }
    }
}
