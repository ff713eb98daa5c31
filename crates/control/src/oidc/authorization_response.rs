//! Authorization response: the query with which the browser comes back (OpenID Connect Core 1.0, section 3.1.2.5).

use super::error::Error;
use super::invalid_response::{ErrorDescription, InvalidAuthorizationResponse};
use super::metadata::Metadata;
use domain::secret::Secret;

/// Errors of an authorization response (RFC 6749, section 4.1.2.1; OpenID Connect Core 1.0, section 3.1.2.6), except
/// `access_denied` and those of [`TEMPORARY_ERRORS`]. Only listed texts reach the log: the browser chooses the query.
const PROVIDER_ERRORS: [&str; 12] = [
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
/// Errors of a provider that is temporarily unavailable.
const TEMPORARY_ERRORS: [&str; 2] = ["server_error", "temporarily_unavailable"];

/// Parameters of an authorization response.
#[derive(Clone, Debug, Default)]
pub struct AuthorizationResponse {
    /// `state`, which finds the sign-in; see [`super::AuthorizationRequest::state`].
    pub state: Option<Secret>,
    /// `code`, to be exchanged for tokens.
    pub code: Option<Secret>,
    /// `iss`, the issuer that answers (RFC 9207).
    pub iss: Option<String>,
    /// `error`, when there is no code.
    pub error: Option<String>,
    /// `error_description`, the error in words.
    pub error_description: Option<String>,
}

impl AuthorizationResponse {
    /// Parses the query of the address that the browser came back to. Other parameters are ignored.
    ///
    /// # Errors
    /// [`Error::AuthorizationResponse`] when a parameter is repeated.
    pub fn parse(query: &str) -> Result<Self, Error> {
        let mut response = Self::default();
        for (name, value) in form_urlencoded::parse(query.as_bytes()) {
            let value = value.into_owned();
            let repeated = match &*name {
                "state" => response.state.replace(Secret::new(value)).is_some(),
                "code" => response.code.replace(Secret::new(value)).is_some(),
                "iss" => response.iss.replace(value).is_some(),
                "error" => response.error.replace(value).is_some(),
                "error_description" => response.error_description.replace(value).is_some(),
                _ => false,
            };
            // RFC 6749, section 3.1. The part that looks up the sign-in and this one must not read different values.
            if repeated {
                return Err(Error::AuthorizationResponse(InvalidAuthorizationResponse::Repeated));
            }
        }
        Ok(response)
    }

    /// The code, when the response comes from this issuer and reports no error.
    pub(super) fn code(&self, issuer: &str, metadata: &Metadata) -> Result<&Secret, Error> {
        // Before the error is read: RFC 9207, section 2.4, covers error responses as well.
        self.check_issuer(issuer, metadata)?;
        if let Some(error) = &self.error {
            return Err(self.provider_error(error));
        }
        self.code.as_ref().ok_or(Error::AuthorizationResponse(InvalidAuthorizationResponse::Empty))
    }

    /// Checks `iss` against mix-up attacks, in which one provider passes its response off as another's so that
    /// the code is sent to the attacker (RFC 9207, section 2.4; RFC 9700, section 4.4). A provider that
    /// announces `iss` must send it.
    fn check_issuer(&self, issuer: &str, metadata: &Metadata) -> Result<(), Error> {
        match &self.iss {
            Some(given) if given == issuer => Ok(()),
            None if !metadata.authorization_response_iss_parameter_supported => Ok(()),
            _ => Err(Error::ResponseIssuer),
        }
    }

    fn provider_error(&self, error: &str) -> Error {
        let description = ErrorDescription::new(self.error_description.as_deref().unwrap_or_default());
        let listed = |list: &[&'static str]| list.iter().copied().find(|listed| *listed == error);
        if error == "access_denied" {
            Error::AccessDenied(description)
        } else if let Some(error) = listed(&TEMPORARY_ERRORS) {
            Error::TemporarilyUnavailable(error, description)
        } else {
            Error::ProviderError(listed(&PROVIDER_ERRORS).unwrap_or("another error"), description)
        }
    }
}
