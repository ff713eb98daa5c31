//! Signing keys of the hostile provider, and tokens signed with them, validly or not.

use std::sync::{Arc, LazyLock};

use aws_lc_rs::hmac;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use rcgen::{KeyPair, PublicKeyData as _, RsaKeySize, SigningKey as _};
use serde_json::{Value, json};
use x509_parser::prelude::FromDer as _;
use x509_parser::public_key::PublicKey;
use x509_parser::x509::SubjectPublicKeyInfo;

/// RSA key with an id (`kid`).
pub struct SigningKey {
    pub id: String,
    pair: Arc<KeyPair>,
}

/// The RSA key of every provider at its start, under an id of its own: generating an RSA key is expensive.
static COMMON: LazyLock<Arc<KeyPair>> = LazyLock::new(new_pair);

fn new_pair() -> Arc<KeyPair> {
    Arc::new(KeyPair::generate_rsa_for(&rcgen::PKCS_RSA_SHA256, RsaKeySize::_2048).unwrap())
}

impl SigningKey {
    /// The common key with a new id.
    pub fn common() -> Self {
        Self { id: uuid::Uuid::new_v4().to_string(), pair: Arc::clone(&COMMON) }
    }

    /// A new key with a new id.
    pub fn generate() -> Self {
        Self::named(&uuid::Uuid::new_v4().to_string())
    }

    /// A new key with this id, which another key may have as well.
    pub fn named(id: &str) -> Self {
        Self { id: id.to_owned(), pair: new_pair() }
    }

    /// The public key as a member of a key set (RFC 7517).
    pub fn public(&self) -> Value {
        let info = self.pair.subject_public_key_info();
        let (_, info) = SubjectPublicKeyInfo::from_der(&info).unwrap();
        let PublicKey::RSA(key) = info.parsed().unwrap() else { panic!("an RSA key is one") };
        let modulus = key.modulus.strip_prefix(&[0]).unwrap_or(key.modulus);
        json!({
            "kty": "RSA", "use": "sig", "alg": "RS256", "kid": self.id,
            "n": URL_SAFE_NO_PAD.encode(modulus), "e": URL_SAFE_NO_PAD.encode(key.exponent),
        })
    }

    /// The public key in PEM.
    pub fn public_pem(&self) -> String {
        self.pair.public_key_pem()
    }

    /// A token signed with RS256.
    pub fn signed(&self, claims: &Value) -> String {
        let input = input(&json!({"alg": "RS256", "kid": self.id}), claims);
        let signature = self.pair.sign(input.as_bytes()).unwrap();
        join(&input, &signature)
    }
}

/// A token without a signature (`alg: none`).
pub fn unsigned(claims: &Value) -> String {
    join(&input(&json!({"alg": "none"}), claims), b"")
}

/// A token signed with HS256: with the client's secret, or with a public key as the secret (RFC 8725, section 2.1).
pub fn with_shared_secret(secret: &str, key_id: &str, claims: &Value) -> String {
    let input = input(&json!({"alg": "HS256", "kid": key_id}), claims);
    let key = hmac::Key::new(hmac::HMAC_SHA256, secret.as_bytes());
    join(&input, hmac::sign(&key, input.as_bytes()).as_ref())
}

fn input(header: &Value, claims: &Value) -> String {
    let part = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
    format!("{}.{}", part(header), part(claims))
}

fn join(input: &str, signature: &[u8]) -> String {
    format!("{input}.{}", URL_SAFE_NO_PAD.encode(signature))
}
