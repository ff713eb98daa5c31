//! Identity provider: begins and finishes sign-ins, and signs users out.

use std::fmt;

use http::{HeaderValue, StatusCode};
use serde_json::{Map, Value};
use url::Url;

use super::authorization_request::{self, AuthorizationRequest, PendingAuthorization, Prompt};
use super::authorization_response::AuthorizationResponse;
use super::code_exchange::{Tokens, exchange_code};
use super::document_cache::{DocumentCache, Examination};
use super::error::Error;
use super::http::HttpClient;
use super::id_token::IdTokenVerifier;
use super::invalid_response::{InvalidProviderResponse, ProviderEndpoint};
use super::jwt_verifier::JwtVerifier;
use super::key_cache::classify_http_error;
use super::metadata::Metadata;
use super::settings::{Settings, is_https, parse_issuer};
use super::verified_identity::VerifiedIdentity;
use domain::clock::Micros;
use domain::secret::Secret;

/// Identity provider that users sign in with.
///
/// - Constructed without a request to it: it may be unavailable when the gateway starts.
/// - Shared by any number of threads, each with a runtime of its own; a call ends when it is dropped.
pub struct Provider {
    settings: Settings,
    http: HttpClient,
    documents: DocumentCache,
}

impl Provider {
    /// A provider with these settings.
    ///
    /// # Errors
    /// [`Error::Issuer`], and [`Error::Tls`] when a file of its certificates is unusable.
    pub fn new(settings: Settings) -> Result<Self, Error> {
        let issuer = parse_issuer(&settings.issuer).map_err(Error::Issuer)?;
        let http = HttpClient::new(is_https(&issuer), &settings.tls).map_err(Error::Tls)?;
        Ok(Self { documents: DocumentCache::new(&settings.issuer, &issuer, Metadata::parse), http, settings })
    }

    /// The settings of the provider.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Reads the provider's documents, for a diagnosis.
    ///
    /// # Errors
    /// [`Error`], for everything that keeps users from signing in.
    pub async fn examine(&self) -> Result<Examination, Error> {
        self.documents.examine(&self.http, |metadata| &metadata.jwks_uri).await
    }

    /// Begins a sign-in: builds the authorization request whose response comes back to this redirect URI.
    ///
    /// # Errors
    /// [`Error::Unreachable`] and others, when the discovery document was never read, and cannot be read now.
    pub async fn begin_sign_in(
        &self,
        redirect_uri: &str,
        prompt: Prompt,
        now: Micros,
    ) -> Result<AuthorizationRequest, Error> {
        let metadata = self.documents.metadata(&self.http, now).await?;
        authorization_request::build(&self.settings, &metadata, redirect_uri, prompt)
    }

    /// Finishes a sign-in with the authorization response that came back to the same redirect URI.
    ///
    /// The caller checks, by `state`, that the browser is the one that began the sign-in.
    ///
    /// # Errors
    /// [`Error`], for everything else that can be wrong.
    pub async fn finish_sign_in(
        &self,
        pending: &PendingAuthorization,
        redirect_uri: &str,
        response: &AuthorizationResponse,
        now: Micros,
    ) -> Result<VerifiedIdentity, Error> {
        // A response of one provider must not finish a sign-in with another (mix-up, RFC 9700, section 4.4).
        if pending.issuer != self.settings.issuer {
            return Err(Error::WrongProvider);
        }
        let metadata = self.documents.metadata(&self.http, now).await?;
        let code = response.code(&self.settings.issuer, &metadata)?;
        let tokens = exchange_code(&self.http, &self.settings, &metadata, pending, redirect_uri, code).await?;
        let claims = self.verify_id_token(&metadata, pending, &tokens, now).await?;
        let userinfo = self.missing_claims(&metadata, &tokens, &claims).await?;
        Ok(VerifiedIdentity::new(tokens.id, claims, userinfo))
    }

    /// The address that signs the user out at the provider, and sends the browser back to `return_to` (OpenID
    /// Connect RP-Initiated Logout 1.0, section 2). None when the provider has no such endpoint, or its
    /// metadata is unavailable.
    pub async fn sign_out_url(&self, id_token: Option<&Secret>, return_to: &str, now: Micros) -> Option<String> {
        let metadata = self.documents.metadata(&self.http, now).await;
        let metadata = metadata
            .inspect_err(|error| {
                tracing::warn!(
                    provider = self.settings.name,
                    reason = error.reason(),
                    error = error.in_full(),
                    "cannot sign the user out at the identity provider"
                );
            })
            .ok()?;
        let mut url = metadata.end_session_endpoint.clone()?;
        let mut query = url.query_pairs_mut();
        if let Some(id_token) = id_token {
            query.append_pair("id_token_hint", id_token.expose());
        }
        query.append_pair("client_id", &self.settings.client_id).append_pair("post_logout_redirect_uri", return_to);
        drop(query);
        Some(url.into())
    }

    /// Verifies the ID token; once more with a newer key set when its key is unknown: the provider may have rotated its
    /// keys since the cached set was read.
    async fn verify_id_token(
        &self,
        metadata: &Metadata,
        pending: &PendingAuthorization,
        tokens: &Tokens,
        now: Micros,
    ) -> Result<Map<String, Value>, Error> {
        let algorithms = metadata.algorithms();
        let Settings { issuer, client_id, audiences, .. } = &self.settings;
        let jwt = JwtVerifier { issuer, audience: client_id, audiences, algorithms: &algorithms, now };
        let verifier = IdTokenVerifier { jwt, nonce: &pending.nonce, access: &tokens.access };
        let cached = self.documents.keys.get(&self.http, &metadata.jwks_uri, now).await?;
        match verifier.verify(&tokens.id, &cached.set) {
            Err(error) if error.may_be_rotation() => {
                match self.documents.keys.refresh(&self.http, &cached, now).await? {
                    Some(newer) => verifier.verify(&tokens.id, &newer.set),
                    None => Err(error),
                }
            }
            verified => verified,
        }
    }

    /// The claims of userinfo, when the ID token lacks one that is needed; else none.
    async fn missing_claims(
        &self,
        metadata: &Metadata,
        tokens: &Tokens,
        claims: &Map<String, Value>,
    ) -> Result<Map<String, Value>, Error> {
        let needed = ["email", "name"].into_iter().chain(self.settings.claims.iter().map(String::as_str));
        let is_missing = needed.into_iter().any(|name| !claims.contains_key(name));
        let subject = claims.get("sub").and_then(Value::as_str).unwrap_or_default();
        match metadata.userinfo_endpoint.as_ref().filter(|_| is_missing) {
            Some(endpoint) => fetch_userinfo(&self.http, endpoint, &tokens.access, subject).await,
            None => Ok(Map::new()),
        }
    }
}

impl fmt::Debug for Provider {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Provider").field("settings", &self.settings).finish_non_exhaustive()
    }
}

/// Userinfo request (OpenID Connect Core 1.0, section 5.3): fetches the claims of the user that an access token was
/// issued for.
///
/// Signed responses, which a client must request at its registration, are not supported: TLS
/// authenticates the provider.
async fn fetch_userinfo(
    http: &HttpClient,
    endpoint: &Url,
    access: &Secret,
    subject: &str,
) -> Result<Map<String, Value>, Error> {
    let bearer = HeaderValue::try_from(format!("Bearer {}", access.expose()));
    let bearer =
        bearer.map_err(|_| Error::InvalidResponse(ProviderEndpoint::Token, InvalidProviderResponse::TokenType))?;
    let response = http.get(endpoint, Some(bearer)).await;
    let response = response.map_err(|error| classify_http_error(ProviderEndpoint::Userinfo, error))?;
    if response.status != StatusCode::OK {
        return Err(invalid_userinfo(InvalidProviderResponse::Status(response.status)));
    }
    let claims: Map<String, Value> = serde_json::from_slice(&response.body)
        .map_err(|error| invalid_userinfo(InvalidProviderResponse::from_json(&error)))?;
    // Section 5.3.2: without this check, an access token of another user, put in place of the right one (token
    // substitution), would bring that user's address.
    if claims.get("sub").and_then(Value::as_str) == Some(subject) { Ok(claims) } else { Err(Error::UserinfoSubject) }
}

fn invalid_userinfo(error: InvalidProviderResponse) -> Error {
    Error::InvalidResponse(ProviderEndpoint::Userinfo, error)
}
