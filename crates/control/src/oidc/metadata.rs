//! Provider metadata, from the discovery document (OpenID Connect Discovery 1.0, section 3).

use serde::Deserialize;
use url::Url;

use super::error::Error;
use super::invalid_response::{ErrorDescription, InvalidProviderResponse, ProviderEndpoint};
use super::jws::Algorithm;
use super::settings::{is_https, is_loopback_http};

/// Path of the discovery document below the issuer.
const WELL_KNOWN: &str = "/.well-known/openid-configuration";
/// Client authentication of a provider that lists none (OpenID Connect Discovery 1.0, section 3).
const DEFAULT_CLIENT_AUTH: &str = "client_secret_basic";
/// Provider metadata.
///
/// - Checked: the issuer is the configured one, and all endpoints are encrypted if the issuer is.
#[derive(Debug, Deserialize)]
pub(super) struct Metadata {
    issuer: String,
    pub(super) authorization_endpoint: Url,
    pub(super) token_endpoint: Url,
    pub(super) jwks_uri: Url,
    pub(super) userinfo_endpoint: Option<Url>,
    pub(super) end_session_endpoint: Option<Url>,
    /// `true`: authorization responses have `iss` (RFC 9207, section 3).
    #[serde(default)]
    pub(super) authorization_response_iss_parameter_supported: bool,
    #[serde(default)]
    id_token_signing_alg_values_supported: Vec<String>,
    token_endpoint_auth_methods_supported: Option<Vec<String>>,
}

/// Client authentication at the token endpoint (RFC 6749, section 2.3.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ClientAuthMethod {
    Basic,
    Post,
}

/// The address of an issuer's discovery document.
pub(super) fn discovery_url(issuer: &Url) -> Url {
    let mut url = issuer.clone();
    url.set_path(&format!("{}{WELL_KNOWN}", issuer.path().trim_end_matches('/')));
    url
}

impl Metadata {
    /// Parses and checks the discovery document of an issuer.
    pub(super) fn parse(body: &[u8], issuer: &str) -> Result<Self, Error> {
        let metadata: Self =
            serde_json::from_slice(body).map_err(|error| invalid(InvalidProviderResponse::from_json(&error)))?;
        // Discovery 1.0, section 4.3: another issuer's document, served here, would make its users
        // sign in as this one's.
        if metadata.issuer != issuer {
            return Err(issuer_mismatch(issuer, &metadata.issuer));
        }
        metadata.check_endpoints(issuer).map_err(invalid)?;
        if metadata.algorithms().is_empty() {
            return Err(invalid(InvalidProviderResponse::SigningAlgorithms));
        }
        Ok(metadata)
    }

    /// Checks the scheme of all endpoints: codes, tokens and the client secret must not be sent in the clear, except on
    /// this machine, to a provider that is there.
    fn check_endpoints(&self, issuer: &str) -> Result<(), InvalidProviderResponse> {
        let is_allowed = if issuer.starts_with("http:") { is_loopback_http } else { is_https };
        let endpoints = [
            ("authorization_endpoint", Some(&self.authorization_endpoint)),
            ("token_endpoint", Some(&self.token_endpoint)),
            ("jwks_uri", Some(&self.jwks_uri)),
            ("userinfo_endpoint", self.userinfo_endpoint.as_ref()),
            ("end_session_endpoint", self.end_session_endpoint.as_ref()),
        ];
        match endpoints.into_iter().find(|(_, url)| url.is_some_and(|url| !is_allowed(url))) {
            Some((name, _)) => Err(InvalidProviderResponse::InsecureEndpoint(name)),
            None => Ok(()),
        }
    }

    /// The signature algorithms that both sides accept; RS256, which every provider has, when it lists none.
    pub(super) fn algorithms(&self) -> Vec<Algorithm> {
        accepted_algorithms(&self.id_token_signing_alg_values_supported)
    }

    /// Selects the client authentication; `client_secret_basic` when both are supported.
    pub(super) fn client_auth_method(&self) -> Result<ClientAuthMethod, InvalidProviderResponse> {
        let supports = |name: &str| match &self.token_endpoint_auth_methods_supported {
            Some(methods) => methods.iter().any(|method| method == name),
            None => name == DEFAULT_CLIENT_AUTH,
        };
        if supports("client_secret_basic") {
            return Ok(ClientAuthMethod::Basic);
        }
        if supports("client_secret_post") {
            Ok(ClientAuthMethod::Post)
        } else {
            Err(InvalidProviderResponse::ClientAuthentication)
        }
    }
}

/// The signature algorithms among these that are accepted; RS256 when there are none.
pub(super) fn accepted_algorithms(offered: &[String]) -> Vec<Algorithm> {
    let is_offered = |name: &str| offered.iter().any(|offered| offered == name);
    let is_accepted = |name: &str| is_offered(name) || (offered.is_empty() && name == "RS256");
    Algorithm::ALL.iter().filter(|(name, _)| is_accepted(name)).map(|(_, algorithm)| *algorithm).collect()
}

/// The error of a document of another issuer than this one.
pub(super) fn issuer_mismatch(configured: &str, found: &str) -> Error {
    Error::IssuerMismatch(ErrorDescription::new(&format!("{configured} is configured, the document has {found}")))
}

pub(super) fn invalid(flaw: InvalidProviderResponse) -> Error {
    Error::InvalidResponse(ProviderEndpoint::Discovery, flaw)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    const ISSUER: &str = "https://login.example.com/a";

    fn parsed(change: impl FnOnce(&mut Value)) -> Result<Metadata, Error> {
        let mut document = json!({
            "issuer": ISSUER,
            "authorization_endpoint": "https://login.example.com/authorize",
            "token_endpoint": "https://login.example.com/token",
            "jwks_uri": "https://keys.example.com/jwks",
            "id_token_signing_alg_values_supported": ["HS256", "none", "ES256", "RS256", "ES512"],
            "op_tos_uri": "",
        });
        change(&mut document);
        Metadata::parse(document.to_string().as_bytes(), ISSUER)
    }

    #[test]
    fn discovery_document_is_below_the_issuer() {
        for (issuer, there) in [
            ("https://a.example", "https://a.example/.well-known/openid-configuration"),
            ("https://a.example/", "https://a.example/.well-known/openid-configuration"),
            ("https://a.example/b", "https://a.example/b/.well-known/openid-configuration"),
            ("https://a.example/b/", "https://a.example/b/.well-known/openid-configuration"),
        ] {
            assert_eq!(discovery_url(&Url::parse(issuer).unwrap()).as_str(), there);
        }
    }

    #[test]
    fn symmetric_signatures_are_not_accepted() {
        let algorithms = parsed(|_| {}).unwrap().algorithms();
        assert_eq!(algorithms, [Algorithm::Rs256, Algorithm::Es256]);
        let silent =
            parsed(|document| drop(document.as_object_mut().unwrap().remove("id_token_signing_alg_values_supported")));
        assert_eq!(silent.unwrap().algorithms(), [Algorithm::Rs256]);
        let symmetric = parsed(|document| document["id_token_signing_alg_values_supported"] = json!(["HS256", "none"]));
        assert!(matches!(
            symmetric,
            Err(Error::InvalidResponse(ProviderEndpoint::Discovery, InvalidProviderResponse::SigningAlgorithms))
        ));
    }

    #[test]
    fn issuer_must_equal_the_configured_one() {
        for other in ["https://login.example.com/a/", "https://login.example.com", "https://LOGIN.example.com/a", ""] {
            let mismatch = parsed(|document| document["issuer"] = json!(other));
            assert_eq!(mismatch.unwrap_err().reason(), "issuer_mismatch", "{other}");
        }
    }

    #[test]
    fn endpoints_must_be_encrypted() {
        for name in
            ["authorization_endpoint", "token_endpoint", "jwks_uri", "userinfo_endpoint", "end_session_endpoint"]
        {
            for bad in ["http://login.example.com/x", "http://127.0.0.1/x", "ftp://login.example.com/x"] {
                let insecure = parsed(|document| document[name] = json!(bad));
                let Err(Error::InvalidResponse(_, InvalidProviderResponse::InsecureEndpoint(found))) = insecure else {
                    panic!("{name} {bad}")
                };
                assert_eq!(found, name, "{bad}");
            }
            let missing = parsed(|document| document[name] = json!("not a URL")).unwrap_err();
            assert_eq!(missing.reason(), "discovery_invalid");
            assert!(!missing.in_full().contains("not a URL"), "{}", missing.in_full());
        }
    }

    #[test]
    fn client_authentication_is_one_that_the_provider_supports() {
        let by =
            |methods: Value| parsed(|document| document["token_endpoint_auth_methods_supported"] = methods).unwrap();
        assert_eq!(by(Value::Null).client_auth_method().unwrap(), ClientAuthMethod::Basic);
        assert_eq!(
            by(json!(["client_secret_post", "client_secret_basic"])).client_auth_method().unwrap(),
            ClientAuthMethod::Basic
        );
        assert_eq!(by(json!(["client_secret_post", "none"])).client_auth_method().unwrap(), ClientAuthMethod::Post);
        assert!(by(json!(["private_key_jwt"])).client_auth_method().is_err());
    }
}
