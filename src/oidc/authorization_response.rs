//! What a browser comes back with (OpenID Connect Core 1.0, section 3.1.2.5).

use crate::secret::Secret;

use super::error::{Error, ErrorDescription};
use super::metadata::Metadata;

/// The errors that a provider may answer with, but for those that have a meaning of their own here (RFC 6749, section
/// 4.1.2.1; OpenID Connect Core 1.0, section 3.1.2.6).
const ERRORS: [&str; 12] = [
    "invalid_request",
    "unauthorized_client",
    "unsupported_response_type",
    "invalid_scope",
    "interaction_required",
    "login_required",
    "account_selection_required",
    "consent_required",
    "invalid_request_uri",
    "invalid_request_object",
    "request_not_supported",
    "request_uri_not_supported",
];
/// Those of a provider that is not up to it for now.
const FOR_NOW: [&str; 2] = ["server_error", "temporarily_unavailable"];

/// What a browser comes back with: the parameters of the authorization response.
#[derive(Clone, Debug, Default)]
pub struct AuthorizationResponse {
    /// By which the sign-in is found; see [`super::AuthorizationRequest::state`].
    pub state: Option<Secret>,
    /// For which there are tokens.
    pub code: Option<Secret>,
    /// Who answers (RFC 9207).
    pub iss: Option<String>,
    /// Why there is no code.
    pub error: Option<String>,
    /// The same in words.
    pub error_description: Option<String>,
}

/// Why a query is no authorization response.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidAuthorizationResponse {
    /// RFC 6749, section 3.1.
    #[error("a parameter is there more than once")]
    Repeated,
    /// Neither a code nor an error.
    #[error("there is neither a code nor an error")]
    Empty,
}

impl AuthorizationResponse {
    /// From the query of the address that the browser came back to. Parameters of other names are of no interest.
    ///
    /// # Errors
    /// [`Error::AuthorizationResponse`] when a parameter is there more than once.
    pub fn parse(query: &str) -> Result<Self, Error> {
        let mut callback = Self::default();
        for (name, value) in form_urlencoded::parse(query.as_bytes()) {
            let value = value.into_owned();
            let repeated = match &*name {
                "state" => callback.state.replace(Secret::new(value)).is_some(),
                "code" => callback.code.replace(Secret::new(value)).is_some(),
                "iss" => callback.iss.replace(value).is_some(),
                "error" => callback.error.replace(value).is_some(),
                "error_description" => callback.error_description.replace(value).is_some(),
                _ => false,
            };
            if repeated {
                return Err(Error::AuthorizationResponse(InvalidAuthorizationResponse::Repeated));
            }
        }
        Ok(callback)
    }

    /// The code, when the response is the provider's and has one.
    pub(super) fn code(&self, issuer: &str, metadata: &Metadata) -> Result<&Secret, Error> {
        self.check_issuer(issuer, metadata)?;
        if let Some(error) = &self.error {
            return Err(self.refusal(error));
        }
        self.code.as_ref().ok_or(Error::AuthorizationResponse(InvalidAuthorizationResponse::Empty))
    }

    /// RFC 9207, section 2.4: errors as well are only the provider's if they say so.
    fn check_issuer(&self, issuer: &str, metadata: &Metadata) -> Result<(), Error> {
        match &self.iss {
            Some(given) if given == issuer => Ok(()),
            None if !metadata.authorization_response_iss_parameter_supported => Ok(()),
            _ => Err(Error::ResponseIssuer),
        }
    }

    fn refusal(&self, error: &str) -> Error {
        let description = ErrorDescription::of(self.error_description.as_deref().unwrap_or_default());
        let known = |list: &[&'static str]| list.iter().copied().find(|known| *known == error);
        if error == "access_denied" {
            Error::AccessDenied(description)
        } else if let Some(error) = known(&FOR_NOW) {
            Error::TemporarilyUnavailable(error, description)
        } else {
            Error::ProviderError(known(&ERRORS).unwrap_or("another error"), description)
        }
    }
}
