//! Exchange of a code for tokens at the token endpoint (OpenID Connect Core 1.0, section 3.1.3).

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::{HeaderValue, StatusCode};
use serde::Deserialize;

use super::authorization_request::PendingAuthorization;
use super::error::Error;
use super::http::{HttpClient, HttpResponse};
use super::invalid_response::{InvalidProviderResponse, ProviderEndpoint};
use super::key_cache::classify_http_error;
use super::metadata::{ClientAuthMethod, Metadata};
use super::settings::Settings;
use domain::secret::Secret;

/// Tokens of a user who signs in.
#[derive(Debug)]
pub(super) struct Tokens {
    /// The access token, for userinfo.
    pub(super) access: Secret,
    /// The ID token, not verified yet.
    pub(super) id: Secret,
}

/// Token response (RFC 6749, section 5.1).
#[derive(Deserialize)]
struct TokenResponse {
    access_token: String,
    token_type: String,
    id_token: Option<String>,
}

/// Error response (RFC 6749, section 5.2).
#[derive(Deserialize)]
struct TokenErrorResponse {
    error: String,
}

/// Exchanges a code for tokens. The redirect URI is the one of the authorization request, and the PKCE verifier goes
/// with the code: the provider refuses a code that was stolen from another browser or given to another client.
pub(super) async fn exchange_code(
    http: &HttpClient,
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
    let authorization = authenticate_client(settings, metadata, &mut form)?;
    let response = http.post(&metadata.token_endpoint, authorization, form.finish()).await;
    read_tokens(&response.map_err(|error| classify_http_error(ProviderEndpoint::Token, error))?)
}

/// Authenticates the client: adds its credentials to the form, or returns them as a header.
fn authenticate_client(
    settings: &Settings,
    metadata: &Metadata,
    form: &mut form_urlencoded::Serializer<'_, String>,
) -> Result<Option<HeaderValue>, Error> {
    let Some(secret) = &settings.client_secret else {
        // A public client has no secret; PKCE alone binds the code to it.
        form.append_pair("client_id", &settings.client_id);
        return Ok(None);
    };
    let method = metadata.client_auth_method();
    match method.map_err(|error| Error::InvalidResponse(ProviderEndpoint::Discovery, error))? {
        ClientAuthMethod::Basic => Ok(Some(basic_credentials(&settings.client_id, secret))),
        ClientAuthMethod::Post => {
            form.append_pair("client_id", &settings.client_id).append_pair("client_secret", secret.expose());
            Ok(None)
        }
    }
}

/// Builds Basic credentials; both parts are form-encoded first (RFC 6749, section 2.3.1).
fn basic_credentials(client_id: &str, secret: &Secret) -> HeaderValue {
    let encoded = |text: &str| form_urlencoded::byte_serialize(text.as_bytes()).collect::<String>();
    let credential = STANDARD.encode(format!("{}:{}", encoded(client_id), encoded(secret.expose())));
    HeaderValue::try_from(format!("Basic {credential}")).expect("base64 can be in a header")
}

fn read_tokens(response: &HttpResponse) -> Result<Tokens, Error> {
    if response.status != StatusCode::OK {
        return Err(read_error(response));
    }
    let tokens: TokenResponse =
        serde_json::from_slice(&response.body).map_err(|error| invalid(InvalidProviderResponse::from_json(&error)))?;
    // Only a bearer token can be sent to userinfo as one; other types need a proof of possession.
    if !tokens.token_type.eq_ignore_ascii_case("bearer") {
        return Err(invalid(InvalidProviderResponse::TokenType));
    }
    let id = tokens.id_token.ok_or(invalid(InvalidProviderResponse::NoIdToken))?;
    Ok(Tokens { access: Secret::new(tokens.access_token), id: Secret::new(id) })
}

/// Classifies an error response (RFC 6749, section 5.2): a code that is not accepted is the browser's fault, a client
/// that is not accepted that of the configuration.
fn read_error(response: &HttpResponse) -> Error {
    let error = serde_json::from_slice::<TokenErrorResponse>(&response.body).map(|response| response.error);
    match error.as_deref() {
        Ok("invalid_grant") => Error::InvalidGrant,
        Ok("invalid_client" | "unauthorized_client") => Error::InvalidClient,
        _ if response.status == StatusCode::UNAUTHORIZED => Error::InvalidClient,
        _ => invalid(InvalidProviderResponse::Status(response.status)),
    }
}

fn invalid(error: InvalidProviderResponse) -> Error {
    Error::InvalidResponse(ProviderEndpoint::Token, error)
}
