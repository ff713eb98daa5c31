//! Signing keys and signatures of issuers: those that no token is accepted of. The cases are those of Wycheproof's test
//! vectors for JSON Web Signatures and Keys, with keys made for this test.

use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::LazyLock;

use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_ASN1_SIGNING, ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _,
};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use control::oidc::Issuer;
use data_encoding::HEXUPPER;
use domain::clock;
use domain::secret::Secret;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::hostile::{Hostile, Raw, Signing};
use super::signing::{SigningKey, with_shared_secret};
use super::{provider_at, refusal, sign_in};

/// A key on P-256.
struct P256 {
    fixed: EcdsaKeyPair,
    asn1: EcdsaKeyPair,
}

impl P256 {
    fn new() -> Self {
        let document = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &SystemRandom::new()).unwrap();
        let read = |algorithm| EcdsaKeyPair::from_pkcs8(algorithm, document.as_ref()).unwrap();
        Self { fixed: read(&ECDSA_P256_SHA256_FIXED_SIGNING), asn1: read(&ECDSA_P256_SHA256_ASN1_SIGNING) }
    }

    /// Its public key, with these members besides, or in place of its own.
    fn public(&self, more: &Value) -> Value {
        let point = self.fixed.public_key().as_ref();
        let (x, y) = (URL_SAFE_NO_PAD.encode(&point[1..33]), URL_SAFE_NO_PAD.encode(&point[33..]));
        with(&json!({"kty": "EC", "crv": "P-256", "kid": "e", "x": x, "y": y}), more)
    }

    fn sign(key: &EcdsaKeyPair, input: &str) -> Vec<u8> {
        key.sign(&SystemRandom::new(), input.as_bytes()).unwrap().as_ref().to_vec()
    }

    fn signed(&self, header: &Value, claims: &Value) -> String {
        let input = input(header, claims);
        join(&input, &Self::sign(&self.fixed, &input))
    }
}

fn with(object: &Value, more: &Value) -> Value {
    let mut object = object.clone();
    more.as_object().unwrap().iter().for_each(|(name, value)| object[name] = value.clone());
    object
}

fn input(header: &Value, claims: &Value) -> String {
    let part = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
    format!("{}.{}", part(header), part(claims))
}

fn join(input: &str, signature: &[u8]) -> String {
    format!("{input}.{}", URL_SAFE_NO_PAD.encode(signature))
}

/// Public key and token of an RSA key of 1024 bits, which no library makes any more.
fn short(claims: &Value) -> (Value, String) {
    static KEY: LazyLock<TempDir> = LazyLock::new(|| {
        let directory = TempDir::new().unwrap();
        openssl(directory.path(), &["genrsa", "-out", "key.pem", "1024"], b"");
        directory
    });
    let modulus = openssl(KEY.path(), &["rsa", "-in", "key.pem", "-noout", "-modulus"], b"");
    let modulus = HEXUPPER.decode(modulus.trim_ascii().strip_prefix(b"Modulus=").unwrap()).unwrap();
    let key = json!({"kty": "RSA", "kid": "r", "n": URL_SAFE_NO_PAD.encode(modulus), "e": "AQAB"});
    let input = input(&json!({"alg": "RS256", "kid": "r"}), claims);
    let signature = openssl(KEY.path(), &["dgst", "-sha256", "-sign", "key.pem"], input.as_bytes());
    (key, join(&input, &signature))
}

fn openssl(directory: &Path, arguments: &[&str], input: &[u8]) -> Vec<u8> {
    let mut command = Command::new("openssl");
    command.current_dir(directory).args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.spawn().unwrap();
    child.stdin.take().unwrap().write_all(input).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{arguments:?}");
    output.stdout
}

fn issuer() -> Hostile {
    let hostile = Hostile::start();
    let algorithms = json!(["RS256", "PS256", "ES256", "ES384", "EdDSA"]);
    hostile.behave(|now| {
        now.metadata = Box::new(move |metadata| metadata["id_token_signing_alg_values_supported"] = algorithms.clone());
    });
    hostile
}

fn claims(hostile: &Hostile) -> Value {
    let now = clock::now().0 / 1_000_000;
    json!({"iss": hostile.issuer(), "aud": "a", "sub": "s", "iat": now, "exp": now + 300})
}

/// Verifies a token against a key set; the refusal, in full.
async fn verify(hostile: &Hostile, keys: &[Value], token: &str) -> Result<(), String> {
    let keys = json!({"keys": keys}).to_string();
    hostile.behave(|now| now.answer_with("/jwks", Raw::Body(keys.into_bytes())));
    let issuer = Issuer::new(&hostile.issuer(), &platform::tls::ClientSettings::default()).unwrap();
    let verified = issuer.verify(&Secret::new(token.to_owned()), ("a", &[]), clock::now()).await;
    verified.map(drop).map_err(|error| format!("{}: {}", error.reason(), error.in_full()))
}

#[tokio::test]
async fn keys_that_are_unfit_are_refused_and_named() {
    let hostile = issuer();
    let claims = claims(&hostile);
    let (short, of_short) = short(&claims);
    let rsa = SigningKey::common();
    let of_rsa = rsa.signed(&claims);
    let p256 = P256::new();
    let of_p256 = p256.signed(&json!({"alg": "ES256", "kid": "e"}), &claims);
    let as_es384 = p256.signed(&json!({"alg": "ES384", "kid": "e"}), &claims);
    let forged = join(of_rsa.rsplit_once('.').unwrap().0, &[0; 256]);
    for (key, token, flaw) in [
        (
            &short,
            &of_short,
            "unfit_key: the ID token is signed with a key that is not accepted: it is an RSA key of 1024 bits",
        ),
        (&with(&rsa.public(), &json!({"e": "AQ"})), &forged, "public exponent"),
        (&with(&rsa.public(), &json!({"e": "Ag"})), &forged, "public exponent"),
        (&with(&rsa.public(), &json!({"key_ops": ["encrypt"]})), &of_rsa, "`key_ops` lacks `verify`"),
        (&with(&rsa.public(), &json!({"use": "enc"})), &of_rsa, "unknown_key"),
        (&with(&rsa.public(), &json!({"alg": "PS256"})), &of_rsa, "unknown_key"),
        (&with(&rsa.public(), &json!({"d": "AQAB"})), &of_rsa, "its private part is in the key set"),
        (&with(&rsa.public(), &json!({"kty": "EC"})), &of_rsa, "unknown_key"),
        (&p256.public(&json!({"alg": "ES384"})), &of_p256, "its curve does not fit its algorithm"),
        (&p256.public(&json!({"alg": "ES384"})), &as_es384, "its curve does not fit its algorithm"),
        (&p256.public(&json!({"alg": "ES256", "crv": "P-384"})), &of_p256, "its curve does not fit its algorithm"),
        (&p256.public(&json!({"crv": "P-384"})), &of_p256, "it is no key for the algorithm of the token"),
        (&p256.public(&json!({})), &as_es384, "it is no key for the algorithm of the token"),
        (&p256.public(&json!({"alg": "RS256"})), &of_p256, "unknown_key"),
        (&p256.public(&json!({"y": p256.public(&json!({}))["x"]})), &of_p256, "it is no key for the algorithm"),
        (&p256.public(&json!({"key_ops": ["sign"]})), &of_p256, "`key_ops` lacks `verify`"),
    ] {
        let refused = verify(&hostile, std::slice::from_ref(key), token).await.unwrap_err();
        assert!(refused.contains(flaw), "{flaw}: {refused}");
    }
    // Beside keys that are refused, the others are accepted.
    let keys = [short, with(&rsa.public(), &json!({"key_ops": ["verify"]})), p256.public(&json!({"alg": "ES256"}))];
    assert_eq!(verify(&hostile, &keys, &of_rsa).await, Ok(()));
    assert_eq!(verify(&hostile, &keys, &of_p256).await, Ok(()));
    let twice = [keys[2].clone(), P256::new().public(&json!({}))];
    assert!(verify(&hostile, &twice, &of_p256).await.is_err(), "two keys have one id");
}

#[tokio::test]
async fn signatures_that_are_not_the_keys_are_refused() {
    let hostile = issuer();
    let claims = claims(&hostile);
    let (p256, rsa) = (P256::new(), SigningKey::common());
    let keys = [p256.public(&json!({"alg": "ES256"})), rsa.public()];
    let header = json!({"alg": "ES256", "kid": "e"});
    let input = input(&header, &claims);
    let good = P256::sign(&p256.fixed, &input);
    assert_eq!(verify(&hostile, &keys, &join(&input, &good)).await, Ok(()));
    let order = URL_SAFE_NO_PAD.decode("_____wAAAAD__________7zm-q2nF56E87nKwvxjJVE").unwrap();
    let mut tokens = Vec::new();
    let number = |last: u8| [vec![0; 31], vec![last]].concat();
    for r in [number(0), number(1), order.clone()] {
        for s in [number(0), number(1), order.clone()] {
            tokens.push(join(&input, &[r.clone(), s].concat()));
        }
    }
    tokens.extend([
        join(&input, &P256::sign(&p256.asn1, &input)),
        join(&input, &[&good[..], &[0, 0]].concat()),
        join(&input, &[&[0], &good[..]].concat()),
        join(&input, &good[..63]),
        join(&input, &[good.clone(), vec![0; 400]].concat()),
        join(&input, b""),
        input.clone(),
        format!("{}.", join(&input, &good)),
        format!("{}.e30", join(&input, &good)),
        join(&super::keys::input(&json!({"alg": "none", "kid": "e"}), &claims), b""),
        join(&super::keys::input(&json!({"alg": "NONE"}), &claims), b""),
        join(&super::keys::input(&json!({"alg": "RS256", "kid": "e"}), &claims), &good),
        with_shared_secret(keys[0]["x"].as_str().unwrap(), "e", &claims),
        p256.signed(&with(&header, &json!({"crit": ["exp"]})), &claims),
        P256::new().signed(&with(&header, &json!({"jwk": P256::new().public(&json!({}))})), &claims),
        rsa.signed(&claims).replace('.', "..").replacen("..", ".", 1),
    ]);
    for token in tokens {
        let refused = verify(&hostile, &keys, &token).await;
        assert!(refused.is_err(), "{token}");
    }
}

#[tokio::test]
async fn short_key_of_a_provider_signs_nobody_in() {
    let hostile = Hostile::start();
    let provider = provider_at(&hostile);
    let keys = json!({"keys": [short(&json!({})).0]}).to_string();
    hostile.behave(|now| {
        now.answer_with("/jwks", Raw::Body(keys.into_bytes()));
        now.signing = Signing::By(Box::new(|claims| short(claims).1));
    });
    assert_eq!(refusal(&provider).await, "unfit_key");
    // The provider replaces the key: the next sign-in reads the key set again.
    hostile.behave(|now| {
        now.answer_well("/jwks");
        now.signing = Signing::Good;
    });
    let later = clock::now().after(std::time::Duration::from_secs(11));
    let begun = provider.begin_sign_in(super::REDIRECT, control::oidc::Prompt::AsNeeded, later).await.unwrap();
    let callback = super::come_back(&begun.url);
    provider.finish_sign_in(&begun.pending, super::REDIRECT, &callback, later).await.unwrap();
    sign_in(&provider).await.unwrap();
}
