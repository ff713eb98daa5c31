//! Errors of a sign-in: a stable reason for logs, the party at fault, and a text that says what to do.
//!
//! - No error contains a token, a code or a secret.

use super::http::HttpError;
use super::invalid_response::{
    ErrorDescription, InvalidAuthorizationResponse, InvalidProviderResponse, ProviderEndpoint,
};
use super::settings::InvalidIssuer;
use super::unfit_key::UnfitKey;
use platform::outbound::delivery;
use platform::tls;

/// Reason why a sign-in failed, or could not begin.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The configured issuer is invalid.
    #[error("the provider's issuer {0}")]
    Issuer(#[source] InvalidIssuer),
    /// The redirect URI of this gateway is not a URL.
    #[error("the address to come back to is not a URL")]
    RedirectUri,
    /// TLS for the provider could not be set up.
    #[error("TLS to the provider cannot be set up")]
    Tls(#[source] tls::Error),
    /// The operating system gave no randomness.
    #[error("the operating system has no randomness to give")]
    Randomness(#[source] getrandom::Error),
    /// An endpoint of the provider does not answer.
    #[error("the provider's {0} cannot be reached")]
    Unreachable(ProviderEndpoint, #[source] HttpError),
    /// An endpoint of the provider answers with an invalid response.
    #[error("the response of the provider's {0} is invalid")]
    InvalidResponse(ProviderEndpoint, #[source] InvalidProviderResponse),
    /// The discovery document names another issuer (OpenID Connect Discovery 1.0, section 4.3). With both.
    #[error("the discovery document names another issuer than the configured one; they must be equal to the letter{0}")]
    IssuerMismatch(ErrorDescription),

    /// The browser brought no authorization response.
    #[error("the response cannot be read")]
    AuthorizationResponse(#[source] InvalidAuthorizationResponse),
    /// The `iss` of the authorization response is missing, or another provider's (RFC 9207).
    #[error("the response is not from the provider that was asked")]
    ResponseIssuer,
    /// The sign-in was begun with another provider.
    #[error("the sign-in was begun at another provider")]
    WrongProvider,
    /// `access_denied`: the user, or a policy of the provider, declined.
    #[error("the sign-in was declined at the provider{0}")]
    AccessDenied(ErrorDescription),
    /// `server_error` or `temporarily_unavailable`.
    #[error("the provider is temporarily unable to sign users in ({0}){1}")]
    TemporarilyUnavailable(&'static str, ErrorDescription),
    /// Any other error of the authorization response.
    #[error("the provider refused the request ({0}){1}")]
    ProviderError(&'static str, ErrorDescription),

    /// `invalid_grant`: the code was used, has expired, or belongs to another sign-in (RFC 6749, section 5.2).
    #[error("the provider did not accept the code: it was used before, is too old, or was not given to this sign-in")]
    InvalidGrant,
    /// `invalid_client`: the provider does not accept the client's id or secret.
    #[error("the provider does not accept the client; check `client_id` and `client_secret`")]
    InvalidClient,

    /// The ID token cannot be parsed.
    #[error("the ID token is malformed")]
    Malformed,
    /// The ID token has no signature.
    #[error("the ID token is not signed")]
    Unsigned,
    /// The ID token is signed with an algorithm that is not accepted.
    #[error("the ID token is signed with an algorithm that is not accepted")]
    Algorithm,
    /// The ID token names a signing key that is not in the provider's key set.
    #[error("the ID token is signed with a key that is not among the provider's")]
    UnknownKey,
    /// The ID token is signed with a key of the provider that is not accepted.
    #[error("the ID token is signed with a key that is not accepted")]
    UnfitKey(#[source] UnfitKey),
    /// The signature of the ID token is wrong.
    #[error("the ID token's signature is wrong")]
    Signature,
    /// `iss` of the ID token is another issuer.
    #[error("the ID token is of another issuer")]
    TokenIssuer,
    /// `aud` of the token lacks this client, or has audiences that are not trusted. With those that it has.
    #[error("`aud` of the token lacks the expected audience, or has some that `audiences` does not list{0}")]
    Audience(ErrorDescription),
    /// `azp` of the ID token is another client.
    #[error("the ID token was issued to another client")]
    AuthorizedParty,
    /// `exp` of the ID token has passed.
    #[error("the ID token has expired; if it is new, the clocks differ")]
    Expired,
    /// `iat` or `nbf` of the ID token is in the future.
    #[error("the ID token is from the future: the clocks differ")]
    NotYetValid,
    /// `nonce` of the ID token is another sign-in's.
    #[error("the ID token answers another sign-in")]
    Nonce,
    /// `at_hash` of the ID token is that of another access token.
    #[error("the ID token does not belong to the access token")]
    AccessTokenHash,
    /// `sub` of the ID token is empty, or too long.
    #[error("the ID token has no valid subject")]
    Subject,
    /// `sub` of the userinfo response is another one (OpenID Connect Core 1.0, section 5.3.2).
    #[error("userinfo has another subject than the ID token")]
    UserinfoSubject,
}

/// Party at fault for an [`Error`], and so what can be done about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The provider is unavailable: try later (503).
    ProviderUnavailable,
    /// The user, or the provider on their behalf, declined (403).
    Declined,
    /// The authorization response of the browser is not valid: begin again (400).
    Browser,
    /// The provider's response is not valid (502).
    Provider,
    /// The gateway, or its configuration (500).
    Gateway,
}

impl Error {
    /// The reason, for logs and metrics: it never changes.
    pub fn reason(&self) -> &'static str {
        self.classify().0
    }

    /// The party at fault.
    pub fn fault(&self) -> Fault {
        self.classify().1
    }

    /// The table of reasons and faults.
    fn classify(&self) -> (&'static str, Fault) {
        match self {
            Self::Issuer(_) => ("issuer", Fault::Gateway),
            Self::RedirectUri => ("redirect_uri", Fault::Gateway),
            Self::Tls(_) => ("tls", Fault::Gateway),
            Self::Randomness(_) => ("randomness", Fault::Gateway),
            Self::Unreachable(..) => ("unreachable", Fault::ProviderUnavailable),
            Self::InvalidResponse(endpoint, _) => (endpoint.invalid_reason(), Fault::Provider),
            Self::IssuerMismatch(_) => ("issuer_mismatch", Fault::Provider),
            Self::AuthorizationResponse(_) => ("callback", Fault::Browser),
            Self::ResponseIssuer => ("response_issuer", Fault::Browser),
            Self::WrongProvider => ("other_provider", Fault::Browser),
            Self::AccessDenied(_) => ("denied_by_user", Fault::Declined),
            Self::TemporarilyUnavailable(..) => ("unavailable", Fault::ProviderUnavailable),
            Self::ProviderError(..) => ("refused", Fault::Provider),
            Self::InvalidGrant => ("code_refused", Fault::Browser),
            Self::InvalidClient => ("client_refused", Fault::Provider),
            Self::Malformed => ("malformed", Fault::Provider),
            Self::Unsigned => ("unsigned", Fault::Provider),
            Self::Algorithm => ("algorithm", Fault::Provider),
            Self::UnknownKey => ("unknown_key", Fault::Provider),
            Self::UnfitKey(_) => ("unfit_key", Fault::Provider),
            Self::Signature => ("signature", Fault::Provider),
            Self::TokenIssuer => ("token_issuer", Fault::Provider),
            Self::Audience(_) => ("audience", Fault::Provider),
            Self::AuthorizedParty => ("authorized_party", Fault::Provider),
            Self::Expired => ("expired", Fault::Provider),
            Self::NotYetValid => ("not_yet", Fault::Provider),
            Self::Nonce => ("nonce", Fault::Provider),
            Self::AccessTokenHash => ("access_token_hash", Fault::Provider),
            Self::Subject => ("subject", Fault::Provider),
            Self::UserinfoSubject => ("userinfo_subject", Fault::Provider),
        }
    }

    /// The error and its causes, on one line.
    pub fn in_full(&self) -> String {
        delivery::in_full(self)
    }

    /// Returns whether the verification may succeed with a newer key set: the provider may have rotated its keys.
    pub(super) fn may_be_rotation(&self) -> bool {
        matches!(self, Self::UnknownKey | Self::UnfitKey(_) | Self::Signature)
    }
}
