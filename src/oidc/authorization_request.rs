//! A sign-in's beginning: the address to send the browser to, and what must be remembered until it comes back.

use std::fmt;

use openidconnect::core::{CoreAuthenticationFlow, CoreClient, CoreJsonWebKeySet};
use openidconnect::{
    AuthUrl, ClientId, CsrfToken, IssuerUrl, Nonce, PkceCodeChallenge, PkceCodeVerifier, RedirectUrl, Scope,
};
use serde::{Deserialize, Serialize};

use super::error::Error;
use super::metadata::Metadata;
use super::settings::Settings;
use crate::secret::Secret;
use crate::session::Token;

/// The scope that makes it OpenID Connect; it is always asked for.
const OPENID: &str = "openid";

/// A sign-in that has begun.
#[derive(Debug)]
pub struct AuthorizationRequest {
    /// Where the browser is to go.
    pub url: String,
    /// What it comes back with; [`PendingAuthorization`] is to be found by its digest, once, by the same browser only.
    pub state: Token,
    /// What is needed then.
    pub pending: PendingAuthorization,
}

/// What is remembered of a sign-in under way.
///
/// - It is stored as it is serialized, in the clear: without the provider's code it is of no use to anybody.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PendingAuthorization {
    /// At which provider.
    pub(super) issuer: String,
    /// What the ID token must repeat.
    #[serde(with = "in_the_clear")]
    pub(super) nonce: Secret,
    /// What shows that whoever asks for the tokens is who began (RFC 7636).
    #[serde(with = "in_the_clear")]
    pub(super) verifier: Secret,
}

/// Begins a sign-in (OpenID Connect Core 1.0, section 3.1.2.1).
pub(super) fn begin(
    settings: &Settings,
    metadata: &Metadata,
    redirect_uri: &str,
) -> Result<AuthorizationRequest, Error> {
    let [state, nonce, verifier] = [random()?, random()?, random()?];
    let issuer = IssuerUrl::new(settings.issuer.clone()).expect("the issuer is a URL, or there were no provider");
    let client = CoreClient::new(ClientId::new(settings.client_id.clone()), issuer, CoreJsonWebKeySet::default())
        .set_auth_uri(AuthUrl::from_url(metadata.authorization_endpoint.clone()))
        .set_redirect_uri(RedirectUrl::new(redirect_uri.to_owned()).map_err(|_| Error::RedirectUri)?);
    let (given_state, given_nonce) = (CsrfToken::new(state.expose().to_owned()), Nonce::new(nonce.expose().to_owned()));
    let challenge = PkceCodeChallenge::from_code_verifier_sha256(&PkceCodeVerifier::new(verifier.expose().to_owned()));
    let scopes = settings.scopes.iter().filter(|scope| *scope != OPENID).cloned().map(Scope::new);
    let (url, _, _) = client
        .authorize_url(CoreAuthenticationFlow::AuthorizationCode, || given_state, || given_nonce)
        .add_scopes(scopes)
        .set_pkce_challenge(challenge)
        .url();
    let secret = |token: &Token| Secret::new(token.expose().to_owned());
    let pending =
        PendingAuthorization { issuer: settings.issuer.clone(), nonce: secret(&nonce), verifier: secret(&verifier) };
    Ok(AuthorizationRequest { url: url.into(), state, pending })
}

fn random() -> Result<Token, Error> {
    Token::generate().map_err(Error::Randomness)
}

impl fmt::Debug for PendingAuthorization {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PendingAuthorization").field("issuer", &self.issuer).finish_non_exhaustive()
    }
}

/// Secrets as plain text, for the one place that keeps them.
mod in_the_clear {
    use serde::{Deserialize as _, Deserializer, Serializer};

    use crate::secret::Secret;

    pub(super) fn serialize<S: Serializer>(secret: &Secret, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(secret.expose())
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Secret, D::Error> {
        String::deserialize(deserializer).map(Secret::new)
    }
}
