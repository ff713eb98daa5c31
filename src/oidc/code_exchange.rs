//! Tokens for a code (OpenID Connect Core 1.0, section 3.1.3).

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::{HeaderValue, StatusCode};
use serde::Deserialize;

use super::authorization_request::PendingAuthorization;
use super::document_cache::no_answer;
use super::error::{Error, InvalidProviderResponse, ProviderEndpoint};
use super::http::{Answer, Http};
use super::metadata::{Authentication, Metadata};
use super::settings::Settings;
use crate::secret::Secret;

/// What a code was good for.
#[derive(Debug)]
pub(super) struct Tokens {
    /// For userinfo.
    pub(super) access: Secret,
    /// As it came; nothing of it is verified.
    pub(super) id: Secret,
}

#[derive(Deserialize)]
struct Granted {
    access_token: String,
    token_type: String,
    id_token: Option<String>,
}

#[derive(Deserialize)]
struct Refused {
    error: String,
}

/// Exchanges a code for tokens.
pub(super) async fn exchange(
    http: &Http,
    settings: &Settings,
    metadata: &Metadata,
    pending: &PendingAuthorization,
    redirect_uri: &str,
    code: &Secret,
) -> Result<Tokens, Error> {
    let mut form = form_urlencoded::Serializer::new(String::new());
    form.append_pair("grant_type", "authorization_code")
        .append_pair("code", code.expose())
        .append_pair("redirect_uri", redirect_uri)
        .append_pair("code_verifier", pending.verifier.expose());
    let authorization = authenticate(settings, metadata, &mut form)?;
    let answer = http.post(&metadata.token_endpoint, authorization, form.finish()).await;
    granted(&answer.map_err(|error| no_answer(ProviderEndpoint::Token, error))?)
}

/// Says who we are: in the form, or, as the answer, in a header.
fn authenticate(
    settings: &Settings,
    metadata: &Metadata,
    form: &mut form_urlencoded::Serializer<'_, String>,
) -> Result<Option<HeaderValue>, Error> {
    let Some(secret) = &settings.client_secret else {
        form.append_pair("client_id", &settings.client_id);
        return Ok(None);
    };
    match metadata.authentication().map_err(|flaw| Error::InvalidResponse(ProviderEndpoint::Discovery, flaw))? {
        Authentication::Basic => Ok(Some(basic(&settings.client_id, secret))),
        Authentication::Post => {
            form.append_pair("client_id", &settings.client_id).append_pair("client_secret", secret.expose());
            Ok(None)
        }
    }
}

/// RFC 6749, section 2.3.1: both parts are encoded as in a form first.
fn basic(client_id: &str, secret: &Secret) -> HeaderValue {
    let encoded = |text: &str| form_urlencoded::byte_serialize(text.as_bytes()).collect::<String>();
    let credential = STANDARD.encode(format!("{}:{}", encoded(client_id), encoded(secret.expose())));
    HeaderValue::try_from(format!("Basic {credential}")).expect("base64 can be in a header")
}

fn granted(answer: &Answer) -> Result<Tokens, Error> {
    if answer.status != StatusCode::OK {
        return Err(refused(answer));
    }
    let granted: Granted =
        serde_json::from_slice(&answer.body).map_err(|error| invalid(InvalidProviderResponse::of_json(&error)))?;
    if !granted.token_type.eq_ignore_ascii_case("bearer") {
        return Err(invalid(InvalidProviderResponse::TokenType));
    }
    let id = granted.id_token.ok_or(invalid(InvalidProviderResponse::NoIdToken))?;
    Ok(Tokens { access: Secret::new(granted.access_token), id: Secret::new(id) })
}

/// RFC 6749, section 5.2.
fn refused(answer: &Answer) -> Error {
    let refused = serde_json::from_slice::<Refused>(&answer.body).map(|refused| refused.error);
    match refused.as_deref() {
        Ok("invalid_grant") => Error::InvalidGrant,
        Ok("invalid_client" | "unauthorized_client") => Error::InvalidClient,
        _ if answer.status == StatusCode::UNAUTHORIZED => Error::InvalidClient,
        _ => invalid(InvalidProviderResponse::Status(answer.status)),
    }
}

fn invalid(flaw: InvalidProviderResponse) -> Error {
    Error::InvalidResponse(ProviderEndpoint::Token, flaw)
}
