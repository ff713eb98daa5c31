//! A provider, and the three things that are done with one.

use std::fmt;

use serde_json::{Map, Value};

use super::authorization_request::{self, AuthorizationRequest, PendingAuthorization};
use super::authorization_response::AuthorizationResponse;
use super::code_exchange::{Tokens, exchange};
use super::document_cache::Documents;
use super::error::Error;
use super::http::Http;
use super::id_token::Expected;
use super::metadata::Metadata;
use super::settings::{Settings, is_encrypted, parse_issuer};
use super::userinfo;
use super::verified_identity::VerifiedIdentity;
use crate::clock::Micros;
use crate::secret::Secret;

/// A provider that people sign in by.
///
/// - Made without a word to it: it may be away when we start.
/// - To be shared by any number of threads, each with a runtime of its own; a call ends when it is dropped.
pub struct Provider {
    settings: Settings,
    http: Http,
    documents: Documents,
}

impl Provider {
    /// A provider as it is configured.
    ///
    /// # Errors
    /// [`Error::Issuer`], and [`Error::Tls`] when a file of its certificates is of no use.
    pub fn new(settings: Settings) -> Result<Self, Error> {
        let issuer = parse_issuer(&settings.issuer).map_err(Error::Issuer)?;
        let http = Http::new(is_encrypted(&issuer), &settings.tls).map_err(Error::Tls)?;
        Ok(Self { documents: Documents::new(&settings.issuer, &issuer), http, settings })
    }

    /// As what it is configured.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Begins a sign-in that comes back to this address.
    ///
    /// # Errors
    /// When the provider has never said where it is to begin, and does not now.
    pub async fn begin_sign_in(&self, redirect_uri: &str, now: Micros) -> Result<AuthorizationRequest, Error> {
        let metadata = self.documents.metadata(&self.http, now).await?;
        authorization_request::begin(&self.settings, &metadata, redirect_uri)
    }

    /// Ends a sign-in with what came back to the same address: who it is.
    ///
    /// Whether the browser is the one that began is for the caller to see to, by the response's `state`.
    ///
    /// # Errors
    /// Everything else that can be wrong.
    pub async fn finish_sign_in(
        &self,
        pending: &PendingAuthorization,
        redirect_uri: &str,
        callback: &AuthorizationResponse,
        now: Micros,
    ) -> Result<VerifiedIdentity, Error> {
        if pending.issuer != self.settings.issuer {
            return Err(Error::WrongProvider);
        }
        let metadata = self.documents.metadata(&self.http, now).await?;
        let code = callback.code(&self.settings.issuer, &metadata)?;
        let tokens = exchange(&self.http, &self.settings, &metadata, pending, redirect_uri, code).await?;
        let claims = self.verify(&metadata, pending, &tokens, now).await?;
        let userinfo = self.userinfo(&metadata, &tokens, &claims).await?;
        Ok(VerifiedIdentity::new(tokens.id, claims, userinfo))
    }

    /// Where the browser can be sent to be signed out at the provider as well, and from there back to `return_to` (OpenID
    /// Connect RP-Initiated Logout 1.0, section 2); none when the provider has no such place, or does not say so now.
    pub async fn sign_out_url(&self, id_token: Option<&Secret>, return_to: &str, now: Micros) -> Option<String> {
        let metadata = self.documents.metadata(&self.http, now).await;
        let metadata = metadata
            .inspect_err(|error| {
                let (provider, reason, error) = (&self.settings.name, error.reason(), error.in_full());
                tracing::warn!(provider, reason, error, "nobody can be signed out at the provider");
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

    /// The ID token's claims; when no key fits, the provider may have new ones.
    async fn verify(
        &self,
        metadata: &Metadata,
        pending: &PendingAuthorization,
        tokens: &Tokens,
        now: Micros,
    ) -> Result<Map<String, Value>, Error> {
        let algorithms = metadata.algorithms();
        let expected = Expected {
            settings: &self.settings,
            algorithms: &algorithms,
            nonce: &pending.nonce,
            access: &tokens.access,
            now,
        };
        let keys = self.documents.keys(&self.http, &metadata.jwks_uri, now).await?;
        let first = expected.claims(&tokens.id, &keys.set);
        match first {
            Err(error) if error.is_of_keys() => match self.documents.other_keys(&self.http, &keys, now).await? {
                Some(other) => expected.claims(&tokens.id, &other.set),
                None => Err(error),
            },
            first => first,
        }
    }

    /// What userinfo says, when something is wanted that the ID token does not say.
    async fn userinfo(
        &self,
        metadata: &Metadata,
        tokens: &Tokens,
        claims: &Map<String, Value>,
    ) -> Result<Map<String, Value>, Error> {
        let wanted = ["email", "name"].into_iter().chain(self.settings.claims.iter().map(String::as_str));
        let lacks = wanted.into_iter().any(|name| !claims.contains_key(name));
        let subject = claims.get("sub").and_then(Value::as_str).unwrap_or_default();
        match metadata.userinfo_endpoint.as_ref().filter(|_| lacks) {
            Some(endpoint) => userinfo::ask(&self.http, endpoint, &tokens.access, subject).await,
            None => Ok(Map::new()),
        }
    }
}

impl fmt::Debug for Provider {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Provider").field("settings", &self.settings).finish_non_exhaustive()
    }
}
