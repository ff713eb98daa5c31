//! Authorization request: the address that the browser is sent to, and the secrets that are stored until it comes back.

use std::fmt;

use openidconnect::core::{CoreAuthPrompt, CoreAuthenticationFlow, CoreClient, CoreJsonWebKeySet};
use openidconnect::{
    AuthUrl, ClientId, CsrfToken, IssuerUrl, Nonce, PkceCodeChallenge, PkceCodeVerifier, RedirectUrl, Scope,
};
use serde::{Deserialize, Serialize};

use super::error::Error;
use super::metadata::Metadata;
use super::settings::Settings;
use crate::secret_text;
use domain::secret::Secret;
use domain::session::Token;

/// The scope that makes the request one of OpenID Connect; the library adds it itself.
const OPENID: &str = "openid";

/// Authorization request of a sign-in that has begun.
#[derive(Debug)]
pub struct AuthorizationRequest {
    /// The address to send the browser to.
    pub url: String,
    /// `state`, which the browser brings back. The caller stores [`PendingAuthorization`] under its digest, for one
    /// use, by the same browser only.
    pub state: Token,
    /// Secrets of the sign-in, which the caller stores until then.
    pub pending: PendingAuthorization,
}

/// Secrets of a sign-in under way.
///
/// - It is stored in the clear, as it is serialized: without the code, which the provider gives to the browser, nothing
///   can be done with it.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PendingAuthorization {
    /// The issuer that the sign-in was begun with.
    pub(super) issuer: String,
    /// The nonce that the ID token must repeat.
    #[serde(with = "secret_text")]
    pub(super) nonce: Secret,
    /// The PKCE code verifier (RFC 7636), which proves to the provider that the client that began exchanges the code.
    #[serde(with = "secret_text")]
    pub(super) verifier: Secret,
}

/// Interaction with the user that the provider is allowed (`prompt` of OpenID Connect Core 1.0, section 3.1.2.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Prompt {
    /// As far as it needs to.
    AsNeeded,
    /// Never: it signs the user in at once, or returns an error where it has no session of the user.
    Never,
}

/// Builds an authorization request (OpenID Connect Core 1.0, section 3.1.2.1).
///
/// `state` binds the response to the browser (CSRF, RFC 6749, section 10.12), `nonce` the ID token to this
/// sign-in (replay of ID tokens), and the PKCE verifier the code to this client (injection of stolen codes,
/// RFC 9700, section 4.5).
pub(super) fn build(
    settings: &Settings,
    metadata: &Metadata,
    redirect_uri: &str,
    prompt: Prompt,
) -> Result<AuthorizationRequest, Error> {
    let [state, nonce, verifier] = [random()?, random()?, random()?];
    let issuer = IssuerUrl::new(settings.issuer.clone()).expect("Provider::new checked that the issuer is a URL");
    let client = CoreClient::new(ClientId::new(settings.client_id.clone()), issuer, CoreJsonWebKeySet::default())
        .set_auth_uri(AuthUrl::from_url(metadata.authorization_endpoint.clone()))
        .set_redirect_uri(RedirectUrl::new(redirect_uri.to_owned()).map_err(|_| Error::RedirectUri)?);
    let given_state = CsrfToken::new(state.expose().to_owned());
    let given_nonce = Nonce::new(nonce.expose().to_owned());
    let challenge = PkceCodeChallenge::from_code_verifier_sha256(&PkceCodeVerifier::new(verifier.expose().to_owned()));
    let scopes = settings.scopes.iter().filter(|scope| *scope != OPENID).cloned().map(Scope::new);
    let mut request = client
        .authorize_url(CoreAuthenticationFlow::AuthorizationCode, || given_state, || given_nonce)
        .add_scopes(scopes)
        .set_pkce_challenge(challenge);
    if prompt == Prompt::Never {
        request = request.add_prompt(CoreAuthPrompt::None);
    }
    let (url, _, _) = request.url();
    let secret = |token: &Token| Secret::new(token.expose().to_owned());
    let pending =
        PendingAuthorization { issuer: settings.issuer.clone(), nonce: secret(&nonce), verifier: secret(&verifier) };
    Ok(AuthorizationRequest { url: url.into(), state, pending })
}

/// 256 random bits.
fn random() -> Result<Token, Error> {
    Token::generate().map_err(Error::Randomness)
}

impl fmt::Debug for PendingAuthorization {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PendingAuthorization").field("issuer", &self.issuer).finish_non_exhaustive()
    }
}
