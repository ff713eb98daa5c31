//! Reports of GitHub about credentials in public repositories (secret scanning partner program).
//!
//! The body is signed as it is sent, with ECDSA over P-256 and SHA-256; fields name the key and have the signature, in
//! ASN.1 (RFC 3279, section 2.2.3), where an integer may have fewer than 32 bytes.

use std::time::Duration;

use aws_lc_rs::signature::{ECDSA_P256_SHA256_ASN1, UnparsedPublicKey};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::HeaderMap;
use rustls::pki_types::SubjectPublicKeyInfoDer;
use rustls::pki_types::pem::PemObject as _;
use serde::{Deserialize, Serialize};
use url::Url;

use crate::management::ManagementError;
use crate::oidc::{Error, HttpClient, KeyCache, parse_issuer};
use domain::clock::{self, Micros};
use domain::key::KeyDigest;
use platform::tls::ClientSettings;

/// Address of GitHub's public keys.
pub const KEYS: &str = "https://api.github.com/meta/public_keys/secret_scanning";
/// Field with the name of the key.
const KEY_FIELD: &str = "github-public-key-identifier";
/// Field with the signature, in Base64.
const SIGNATURE_FIELD: &str = "github-public-key-signature";
/// Time between two reads of the keys for an unknown one: GitHub answers sixty requests of an address in an hour.
const KEY_REFRESH: Duration = Duration::from_secs(300);

/// GitHub, by its public keys. Shared by any number of threads.
pub struct GitHub {
    address: Url,
    http: HttpClient,
    keys: KeyCache<PublicKeys>,
}

/// The document of its keys.
#[derive(Deserialize)]
struct PublicKeys {
    public_keys: Vec<PublicKey>,
}

#[derive(Deserialize)]
struct PublicKey {
    key_identifier: String,
    /// In PEM.
    key: String,
}

/// One finding of a report.
#[derive(Deserialize)]
pub(super) struct Match {
    /// The text that was found, with the form of a key or of a management token.
    pub(super) token: String,
    #[serde(rename = "type", default)]
    pub(super) kind: String,
    #[serde(default)]
    pub(super) url: Option<String>,
    #[serde(default)]
    pub(super) source: Option<String>,
}

/// Answer about one finding.
#[derive(Serialize)]
pub(super) struct Feedback {
    token_hash: String,
    token_type: String,
    label: &'static str,
}

impl GitHub {
    /// GitHub, whose keys are at this address; `tls` has the authorities that its certificate must come from.
    ///
    /// # Errors
    /// [`Error::Issuer`], and [`Error::Tls`] when a file of the certificates is unusable.
    pub fn new(address: &str, tls: &ClientSettings) -> Result<Self, Error> {
        let address = parse_issuer(address).map_err(Error::Issuer)?;
        let http = HttpClient::new(address.scheme() == "https", tls).map_err(Error::Tls)?;
        let parse = |body: &[u8]| serde_json::from_slice(body);
        Ok(Self { address, http, keys: KeyCache::new(parse, KEY_REFRESH) })
    }

    /// Reads the keys, for a diagnosis; returns their number.
    ///
    /// # Errors
    /// [`Error`], for everything that keeps its reports from being accepted.
    pub async fn examine(&self) -> Result<usize, Error> {
        Ok(self.keys.get(&self.http, &self.address, clock::now()).await?.set.public_keys.len())
    }

    /// Checks that it has signed a body; once more with newer keys when the key is unknown.
    ///
    /// # Errors
    /// [`ManagementError::ReportUnsigned`]; [`ManagementError::ReportUnverified`] when its keys cannot be read.
    pub(super) async fn check(&self, headers: &HeaderMap, body: &[u8], now: Micros) -> Result<(), ManagementError> {
        let field = |name| headers.get(name).and_then(|value| value.to_str().ok());
        let signature = field(SIGNATURE_FIELD).and_then(|text| STANDARD.decode(text).ok());
        let (Some(key), Some(signature)) = (field(KEY_FIELD), signature) else {
            return Err(ManagementError::ReportUnsigned);
        };
        let unverified = ManagementError::ReportUnverified;
        let cached = self.keys.get(&self.http, &self.address, now).await.map_err(unverified)?;
        let is_signed = match cached.set.find(key) {
            Some(key) => key.verifies(body, &signature),
            None => {
                let newer = self.keys.refresh(&self.http, &cached, now).await.map_err(unverified)?;
                newer.is_some_and(|newer| newer.set.find(key).is_some_and(|key| key.verifies(body, &signature)))
            }
        };
        if is_signed { Ok(()) } else { Err(ManagementError::ReportUnsigned) }
    }
}

impl PublicKeys {
    fn find(&self, name: &str) -> Option<&PublicKey> {
        self.public_keys.iter().find(|key| key.key_identifier == name)
    }
}

impl PublicKey {
    fn verifies(&self, body: &[u8], signature: &[u8]) -> bool {
        let Ok(key) = SubjectPublicKeyInfoDer::from_pem_slice(self.key.as_bytes()) else { return false };
        UnparsedPublicKey::new(&ECDSA_P256_SHA256_ASN1, key.as_ref()).verify(body, signature).is_ok()
    }
}

impl Feedback {
    /// The answer about a text with the form of a key or a token: a false positive where there is none.
    pub(super) fn new(found: &Match, is_known: bool) -> Self {
        let label = if is_known { "true_positive" } else { "false_positive" };
        let token_hash = KeyDigest::of(found.token.as_bytes()).to_hex();
        Self { token_hash, token_type: found.kind.clone(), label }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example of GitHub's documentation, with a signature whose second integer has 31 bytes.
    #[test]
    fn documented_example_verifies_and_a_changed_letter_does_not() {
        let key = "-----BEGIN PUBLIC KEY-----\nMFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAEYAGMWO8XgCamYKMJS6jc/qgvSlAd\n\
                   AjPuDPRcXU22YxgBrz+zoN19MzuRyW87qEt9/AmtoNP5GrobzUvQSyJFVw==\n-----END PUBLIC KEY-----\n";
        let key = PublicKey { key_identifier: String::new(), key: key.to_owned() };
        let found = r#"[{"source":"commit","token":"some_token","type":"some_type""#;
        let body = format!("{found},\"url\":\"https://example.com/base-repo-url/\"}}]");
        let signature =
            "MEQCIQDaMKqrGnE27S0kgMrEK0eYBmyG0LeZismAEz/BgZyt7AIfXt9fErtRS4XaeSt/AO1RtBY66YcAdjxji410VQV4xg==";
        let signature = STANDARD.decode(signature).unwrap();
        assert_eq!(signature[38], 31, "bytes of the second integer");
        assert!(key.verifies(body.as_bytes(), &signature));
        for at in 0..body.len() {
            let mut changed = body.as_bytes().to_vec();
            changed[at] ^= 1;
            assert!(!key.verifies(&changed, &signature), "byte {at}");
        }
    }
}
