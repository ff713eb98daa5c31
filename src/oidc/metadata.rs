//! What a provider says of itself (OpenID Connect Discovery 1.0, section 3), as far as it matters here.

use openidconnect::core::CoreJwsSigningAlgorithm as Algorithm;
use openidconnect::url::Url;
use serde::Deserialize;

use super::error::{Error, InvalidProviderResponse, ProviderEndpoint};
use super::settings::{is_encrypted, is_local};

/// Where the document is, under the issuer.
const WELL_KNOWN: &str = "/.well-known/openid-configuration";
/// What a provider's silence means (OpenID Connect Discovery 1.0, section 3).
const DEFAULT_AUTHENTICATION: &str = "client_secret_basic";
/// The signatures that are accepted: by keys that the provider alone has. With the client's secret (HS256 and its like)
/// whoever knows it could be anybody.
const ACCEPTED: [(&str, Algorithm); 9] = [
    ("RS256", Algorithm::RsaSsaPkcs1V15Sha256),
    ("RS384", Algorithm::RsaSsaPkcs1V15Sha384),
    ("RS512", Algorithm::RsaSsaPkcs1V15Sha512),
    ("PS256", Algorithm::RsaSsaPssSha256),
    ("PS384", Algorithm::RsaSsaPssSha384),
    ("PS512", Algorithm::RsaSsaPssSha512),
    ("ES256", Algorithm::EcdsaP256Sha256),
    ("ES384", Algorithm::EcdsaP384Sha384),
    ("EdDSA", Algorithm::EdDsa),
];

/// What a provider says of itself.
///
/// - It was checked: the issuer is the configured one, and what is sent to its addresses is encrypted as to the issuer.
#[derive(Debug, Deserialize)]
pub(super) struct Metadata {
    issuer: String,
    pub(super) authorization_endpoint: Url,
    pub(super) token_endpoint: Url,
    pub(super) jwks_uri: Url,
    pub(super) userinfo_endpoint: Option<Url>,
    pub(super) end_session_endpoint: Option<Url>,
    /// Whether responses name their issuer (RFC 9207, section 3).
    #[serde(default)]
    pub(super) authorization_response_iss_parameter_supported: bool,
    #[serde(default)]
    id_token_signing_alg_values_supported: Vec<String>,
    token_endpoint_auth_methods_supported: Option<Vec<String>>,
}

/// How we say who we are when we ask for tokens (RFC 6749, section 2.3.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Authentication {
    Basic,
    Post,
}

/// The address of the document of an issuer.
pub(super) fn address(issuer: &Url) -> Url {
    let mut url = issuer.clone();
    url.set_path(&format!("{}{WELL_KNOWN}", issuer.path().trim_end_matches('/')));
    url
}

impl Metadata {
    /// Reads the document of an issuer.
    pub(super) fn parse(body: &[u8], issuer: &str) -> Result<Self, Error> {
        let metadata: Self =
            serde_json::from_slice(body).map_err(|error| invalid(InvalidProviderResponse::of_json(&error)))?;
        if metadata.issuer != issuer {
            return Err(Error::IssuerMismatch);
        }
        metadata.check_addresses(issuer).map_err(invalid)?;
        if metadata.algorithms().is_empty() {
            return Err(invalid(InvalidProviderResponse::Algorithms));
        }
        Ok(metadata)
    }

    fn check_addresses(&self, issuer: &str) -> Result<(), InvalidProviderResponse> {
        let fits = if issuer.starts_with("http:") { is_local } else { is_encrypted };
        let addresses = [
            ("authorization_endpoint", Some(&self.authorization_endpoint)),
            ("token_endpoint", Some(&self.token_endpoint)),
            ("jwks_uri", Some(&self.jwks_uri)),
            ("userinfo_endpoint", self.userinfo_endpoint.as_ref()),
            ("end_session_endpoint", self.end_session_endpoint.as_ref()),
        ];
        match addresses.into_iter().find(|(_, url)| url.is_some_and(|url| !fits(url))) {
            Some((name, _)) => Err(InvalidProviderResponse::Insecure(name)),
            None => Ok(()),
        }
    }

    /// The signatures that both sides accept; RS256 when the provider names none, which all of them have.
    pub(super) fn algorithms(&self) -> Vec<Algorithm> {
        let offered = &self.id_token_signing_alg_values_supported;
        let is_offered = |name: &str| offered.iter().any(|offered| offered == name);
        let takes = |name: &str| is_offered(name) || (offered.is_empty() && name == "RS256");
        ACCEPTED.iter().filter(|(name, _)| takes(name)).map(|(_, algorithm)| algorithm.clone()).collect()
    }

    /// How a client with a secret shows it.
    pub(super) fn authentication(&self) -> Result<Authentication, InvalidProviderResponse> {
        let offers = |name: &str| match &self.token_endpoint_auth_methods_supported {
            Some(methods) => methods.iter().any(|method| method == name),
            None => name == DEFAULT_AUTHENTICATION,
        };
        if offers("client_secret_basic") {
            return Ok(Authentication::Basic);
        }
        if offers("client_secret_post") {
            Ok(Authentication::Post)
        } else {
            Err(InvalidProviderResponse::ClientAuthentication)
        }
    }
}

fn invalid(flaw: InvalidProviderResponse) -> Error {
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
    fn the_document_is_under_the_issuer() {
        for (issuer, there) in [
            ("https://a.example", "https://a.example/.well-known/openid-configuration"),
            ("https://a.example/", "https://a.example/.well-known/openid-configuration"),
            ("https://a.example/b", "https://a.example/b/.well-known/openid-configuration"),
            ("https://a.example/b/", "https://a.example/b/.well-known/openid-configuration"),
        ] {
            assert_eq!(address(&Url::parse(issuer).unwrap()).as_str(), there);
        }
    }

    #[test]
    fn only_signatures_by_the_provider_alone_are_accepted() {
        let algorithms = parsed(|_| {}).unwrap().algorithms();
        assert_eq!(algorithms, [Algorithm::RsaSsaPkcs1V15Sha256, Algorithm::EcdsaP256Sha256]);
        let silent =
            parsed(|document| drop(document.as_object_mut().unwrap().remove("id_token_signing_alg_values_supported")));
        assert_eq!(silent.unwrap().algorithms(), [Algorithm::RsaSsaPkcs1V15Sha256]);
        let symmetric = parsed(|document| document["id_token_signing_alg_values_supported"] = json!(["HS256", "none"]));
        assert!(matches!(
            symmetric,
            Err(Error::InvalidResponse(ProviderEndpoint::Discovery, InvalidProviderResponse::Algorithms))
        ));
    }

    #[test]
    fn its_issuer_is_the_configured_one_to_the_letter() {
        for other in ["https://login.example.com/a/", "https://login.example.com", "https://LOGIN.example.com/a", ""] {
            let mismatch = parsed(|document| document["issuer"] = json!(other));
            assert_eq!(mismatch.unwrap_err().reason(), "issuer_mismatch", "{other}");
        }
    }

    #[test]
    fn nothing_is_sent_in_the_clear() {
        for name in
            ["authorization_endpoint", "token_endpoint", "jwks_uri", "userinfo_endpoint", "end_session_endpoint"]
        {
            for bad in ["http://login.example.com/x", "http://127.0.0.1/x", "ftp://login.example.com/x"] {
                let insecure = parsed(|document| document[name] = json!(bad));
                assert!(
                    matches!(insecure, Err(Error::InvalidResponse(_, InvalidProviderResponse::Insecure(found))) if found == name),
                    "{name} {bad}"
                );
            }
            let missing = parsed(|document| document[name] = json!("not a URL")).unwrap_err();
            assert_eq!(missing.reason(), "discovery_invalid");
            assert!(!missing.in_full().contains("not a URL"), "{}", missing.in_full());
        }
    }

    #[test]
    fn the_secret_is_shown_as_the_provider_wants_it() {
        let by =
            |methods: Value| parsed(|document| document["token_endpoint_auth_methods_supported"] = methods).unwrap();
        assert_eq!(by(Value::Null).authentication().unwrap(), Authentication::Basic);
        assert_eq!(
            by(json!(["client_secret_post", "client_secret_basic"])).authentication().unwrap(),
            Authentication::Basic
        );
        assert_eq!(by(json!(["client_secret_post", "none"])).authentication().unwrap(), Authentication::Post);
        assert!(by(json!(["private_key_jwt"])).authentication().is_err());
    }
}
