//! Issuer of tokens that are presented here: a CI, a cluster, a cloud. It signs no user in.

use std::fmt;

use serde::Deserialize;
use url::Url;

use super::document_cache::{DocumentCache, Examination};
use super::error::Error;
use super::http::HttpClient;
use super::invalid_response::InvalidProviderResponse;
use super::jws::Algorithm;
use super::jwt_verifier::JwtVerifier;
use super::metadata::{accepted_algorithms, invalid, issuer_mismatch};
use super::settings::{is_https, is_loopback_http, parse_issuer};
use super::subject_token::{SubjectToken, SubjectTokenError};
use domain::clock::Micros;
use domain::secret::Secret;
use platform::tls::ClientSettings;

/// Issuer of subject tokens, with its documents.
///
/// - Constructed without a request to it. Shared by any number of threads, each with a runtime of its own.
pub struct Issuer {
    issuer: String,
    http: HttpClient,
    documents: DocumentCache<IssuerMetadata>,
}

/// The discovery document, as far as tokens are verified by it: the issuer of a CI has no authorization endpoint, which
/// only sign-ins need.
///
/// - Checked: the issuer is the expected one, and its keys come encrypted if it is.
#[derive(Debug, Deserialize)]
pub(super) struct IssuerMetadata {
    issuer: String,
    jwks_uri: Url,
    #[serde(default)]
    id_token_signing_alg_values_supported: Vec<String>,
}

impl Issuer {
    /// The issuer of this identifier; `tls` has the authorities that its certificate must come from.
    ///
    /// # Errors
    /// [`Error::Issuer`], and [`Error::Tls`] when a file of the certificates is unusable.
    pub fn new(issuer: &str, tls: &ClientSettings) -> Result<Self, Error> {
        let address = parse_issuer(issuer).map_err(Error::Issuer)?;
        let http = HttpClient::new(is_https(&address), tls).map_err(Error::Tls)?;
        let documents = DocumentCache::new(issuer, &address, IssuerMetadata::parse);
        Ok(Self { issuer: issuer.to_owned(), http, documents })
    }

    /// Reads the issuer's documents, for a diagnosis.
    ///
    /// # Errors
    /// [`Error`], for everything that keeps its tokens from being exchanged.
    pub async fn examine(&self) -> Result<Examination, Error> {
        self.documents.examine(&self.http, |metadata| &metadata.jwks_uri).await
    }

    /// Verifies a token that was issued for this audience, and for none besides but `audiences`; once more with a newer
    /// key set when its key is unknown.
    ///
    /// # Errors
    /// [`SubjectTokenError`].
    pub async fn verify(
        &self,
        raw: &Secret,
        (audience, audiences): (&str, &[String]),
        now: Micros,
    ) -> Result<SubjectToken, SubjectTokenError> {
        let metadata = self.documents.metadata(&self.http, now).await?;
        let algorithms = metadata.algorithms();
        let verifier = JwtVerifier { issuer: &self.issuer, audience, audiences, algorithms: &algorithms, now };
        let cached = self.documents.keys.get(&self.http, &metadata.jwks_uri, now).await?;
        match SubjectToken::verify(&verifier, raw, &cached.set) {
            Err(error) if error.may_be_rotation() => {
                match self.documents.keys.refresh(&self.http, &cached, now).await? {
                    Some(newer) => SubjectToken::verify(&verifier, raw, &newer.set),
                    None => Err(error),
                }
            }
            verified => verified,
        }
    }
}

impl IssuerMetadata {
    fn parse(body: &[u8], issuer: &str) -> Result<Self, Error> {
        let metadata: Self =
            serde_json::from_slice(body).map_err(|error| invalid(InvalidProviderResponse::from_json(&error)))?;
        // Another issuer's document, served here, would make its tokens those of this one (Discovery 1.0, section 4.3).
        if metadata.issuer != issuer {
            return Err(issuer_mismatch(issuer, &metadata.issuer));
        }
        let is_allowed = if issuer.starts_with("http:") { is_loopback_http } else { is_https };
        if !is_allowed(&metadata.jwks_uri) {
            return Err(invalid(InvalidProviderResponse::InsecureEndpoint("jwks_uri")));
        }
        if metadata.algorithms().is_empty() {
            return Err(invalid(InvalidProviderResponse::SigningAlgorithms));
        }
        Ok(metadata)
    }

    /// The signature algorithms that are accepted.
    fn algorithms(&self) -> Vec<Algorithm> {
        accepted_algorithms(&self.id_token_signing_alg_values_supported)
    }
}

impl fmt::Debug for Issuer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Issuer").field("issuer", &self.issuer).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn document_needs_a_key_set_and_no_other_endpoint() {
        let parsed = |document: serde_json::Value| {
            IssuerMetadata::parse(document.to_string().as_bytes(), "https://ci.example.com")
                .map(|metadata| metadata.algorithms())
                .map_err(|error| error.reason())
        };
        let issuer = "https://ci.example.com";
        let keys = "https://ci.example.com/keys";
        assert_eq!(parsed(json!({"issuer": issuer, "jwks_uri": keys})), Ok(vec![Algorithm::Rs256]));
        for (document, reason) in [
            (json!({"issuer": "https://ci.example.com/", "jwks_uri": keys}), "issuer_mismatch"),
            (json!({"issuer": issuer}), "discovery_invalid"),
            (json!({"issuer": issuer, "jwks_uri": "http://ci.example.com/keys"}), "discovery_invalid"),
            (json!({"issuer": issuer, "jwks_uri": "http://127.0.0.1/keys"}), "discovery_invalid"),
            (
                json!({"issuer": issuer, "jwks_uri": keys, "id_token_signing_alg_values_supported": ["none", "HS256"]}),
                "discovery_invalid",
            ),
        ] {
            assert_eq!(parsed(document.clone()), Err(reason), "{document}");
        }
    }
}
