//! What else the provider knows of a person (OpenID Connect Core 1.0, section 5.3).

use http::{HeaderValue, StatusCode};
use openidconnect::url::Url;
use serde_json::{Map, Value};

use super::document_cache::no_answer;
use super::error::{Error, InvalidProviderResponse, ProviderEndpoint};
use super::http::Http;
use crate::secret::Secret;

/// The claims of whom an access token is for, who must be this subject.
///
/// Signed answers, which a client must ask for when it is registered, are not read: the connection is the provider's.
pub(super) async fn ask(
    http: &Http,
    endpoint: &Url,
    access: &Secret,
    subject: &str,
) -> Result<Map<String, Value>, Error> {
    let bearer = HeaderValue::try_from(format!("Bearer {}", access.expose()));
    let bearer =
        bearer.map_err(|_| Error::InvalidResponse(ProviderEndpoint::Token, InvalidProviderResponse::TokenType))?;
    let answer =
        http.get(endpoint, Some(bearer)).await.map_err(|error| no_answer(ProviderEndpoint::Userinfo, error))?;
    if answer.status != StatusCode::OK {
        return Err(invalid(InvalidProviderResponse::Status(answer.status)));
    }
    let claims: Map<String, Value> =
        serde_json::from_slice(&answer.body).map_err(|error| invalid(InvalidProviderResponse::of_json(&error)))?;
    if claims.get("sub").and_then(Value::as_str) == Some(subject) { Ok(claims) } else { Err(Error::UserinfoSubject) }
}

fn invalid(flaw: InvalidProviderResponse) -> Error {
    Error::InvalidResponse(ProviderEndpoint::Userinfo, flaw)
}
