//! Userinfo request: claims of a user that the ID token does not have (OpenID Connect Core 1.0, section 5.3).

use http::{HeaderValue, StatusCode};
use openidconnect::url::Url;
use serde_json::{Map, Value};

use super::document_cache::classify_http_error;
use super::error::Error;
use super::http::HttpClient;
use super::invalid_response::{InvalidProviderResponse, ProviderEndpoint};
use domain::secret::Secret;

/// Fetches the claims of the user that an access token was issued for.
///
/// Signed responses, which a client must request at its registration, are not supported: TLS
/// authenticates the provider.
pub(super) async fn fetch_userinfo(
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
        return Err(invalid(InvalidProviderResponse::Status(response.status)));
    }
    let claims: Map<String, Value> =
        serde_json::from_slice(&response.body).map_err(|error| invalid(InvalidProviderResponse::from_json(&error)))?;
    // Section 5.3.2: without this check, an access token of another user, put in place of the right one (token
    // substitution), would bring that user's address.
    if claims.get("sub").and_then(Value::as_str) == Some(subject) { Ok(claims) } else { Err(Error::UserinfoSubject) }
}

fn invalid(error: InvalidProviderResponse) -> Error {
    Error::InvalidResponse(ProviderEndpoint::Userinfo, error)
}
