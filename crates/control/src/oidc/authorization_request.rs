//! Authorization request: the address that the browser is sent to, and the secrets that are stored until it comes back.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use url::Url;

use super::error::Error;
use super::metadata::Metadata;
use super::settings::Settings;
use crate::secret_text;
use domain::secret::Secret;
use domain::session::Token;

/// The scope that makes the request one of OpenID Connect.
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
    Url::parse(redirect_uri).map_err(|_| Error::RedirectUri)?;
    let challenge = URL_SAFE_NO_PAD.encode(Sha256::digest(verifier.expose()));
    let others = settings.scopes.iter().map(String::as_str).filter(|scope| *scope != OPENID);
    let scopes: Vec<&str> = std::iter::once(OPENID).chain(others).collect();
    let mut url = metadata.authorization_endpoint.clone();
    url.query_pairs_mut()
        .append_pair("response_type", "code")
        .append_pair("client_id", &settings.client_id)
        .append_pair("redirect_uri", redirect_uri)
        .append_pair("scope", &scopes.join(" "))
        .append_pair("state", state.expose())
        .append_pair("nonce", nonce.expose())
        .append_pair("code_challenge", &challenge)
        .append_pair("code_challenge_method", "S256");
    if prompt == Prompt::Never {
        url.query_pairs_mut().append_pair("prompt", "none");
    }
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
