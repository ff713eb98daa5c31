//! Signed tokens in compact form (JWS, RFC 7515; JWT, RFC 7519), and what they are verified with.
//!
//! `aws-lc-rs` verifies the signature. Which key and which algorithm it is verified with is decided here, and never by
//! the token: one that chooses `none`, or HS256 with a public key as the secret (algorithm confusion, RFC 8725,
//! section 2.1), is refused before its signature is looked at.

use aws_lc_rs::digest;
use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_FIXED, ECDSA_P384_SHA384_FIXED, ED25519, ParsedPublicKey, RSA_PKCS1_2048_8192_SHA256,
    RSA_PKCS1_2048_8192_SHA384, RSA_PKCS1_2048_8192_SHA512, RSA_PSS_2048_8192_SHA256, RSA_PSS_2048_8192_SHA384,
    RSA_PSS_2048_8192_SHA512, RsaParameters, RsaPublicKeyComponents, VerificationAlgorithm,
};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use super::error::Error;
use super::key_set::{number, text};
use super::unfit_key::UnfitKey;
use crate::distinct_json::Distinct;
use domain::secret::Secret;

/// Types of tokens (RFC 7519, section 5.1; RFC 7515, section 4.1.9), in lower case.
const TYPES: [&str; 4] = ["jwt", "application/jwt", "jose", "application/jose"];

/// Algorithm of a signature (RFC 7518, section 3.1; RFC 8037): asymmetric ones, whose private key only the provider
/// has. With HS256 and the like, the client secret signs, and a copy of the configuration would be enough to forge any
/// user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Algorithm {
    Rs256,
    Rs384,
    Rs512,
    Ps256,
    Ps384,
    Ps512,
    Es256,
    Es384,
    EdDsa,
}

/// Verification by an algorithm.
enum Scheme {
    Rsa(&'static RsaParameters),
    /// By a key of this type, on this curve.
    Curve(&'static str, &'static str, &'static dyn VerificationAlgorithm),
}

/// A token whose signature is not verified yet.
pub(super) struct Token<'a> {
    header: Header,
    pub(super) claims: Map<String, Value>,
    /// The header and the claims, as they are signed.
    pub(super) signed: &'a str,
    signature: Vec<u8>,
}

/// Header of a token. Keys that it brings along (`jwk`, `jku`, `x5c`) mean nothing.
#[derive(Deserialize)]
struct Header {
    alg: String,
    kid: Option<String>,
    typ: Option<String>,
    cty: Option<Value>,
    crit: Option<Value>,
}

impl Algorithm {
    /// All, by their names.
    pub(super) const ALL: [(&'static str, Self); 9] = [
        ("RS256", Self::Rs256),
        ("RS384", Self::Rs384),
        ("RS512", Self::Rs512),
        ("PS256", Self::Ps256),
        ("PS384", Self::Ps384),
        ("PS512", Self::Ps512),
        ("ES256", Self::Es256),
        ("ES384", Self::Es384),
        ("EdDSA", Self::EdDsa),
    ];

    /// The hash function of `at_hash` (OpenID Connect Core 1.0, section 3.1.3.6).
    pub(super) fn digest(self) -> &'static digest::Algorithm {
        match self {
            Self::Rs256 | Self::Ps256 | Self::Es256 => &digest::SHA256,
            Self::Rs384 | Self::Ps384 | Self::Es384 => &digest::SHA384,
            Self::Rs512 | Self::Ps512 | Self::EdDsa => &digest::SHA512,
        }
    }

    fn scheme(self) -> Scheme {
        match self {
            Self::Rs256 => Scheme::Rsa(&RSA_PKCS1_2048_8192_SHA256),
            Self::Rs384 => Scheme::Rsa(&RSA_PKCS1_2048_8192_SHA384),
            Self::Rs512 => Scheme::Rsa(&RSA_PKCS1_2048_8192_SHA512),
            Self::Ps256 => Scheme::Rsa(&RSA_PSS_2048_8192_SHA256),
            Self::Ps384 => Scheme::Rsa(&RSA_PSS_2048_8192_SHA384),
            Self::Ps512 => Scheme::Rsa(&RSA_PSS_2048_8192_SHA512),
            Self::Es256 => Scheme::Curve("EC", "P-256", &ECDSA_P256_SHA256_FIXED),
            Self::Es384 => Scheme::Curve("EC", "P-384", &ECDSA_P384_SHA384_FIXED),
            Self::EdDsa => Scheme::Curve("OKP", "Ed25519", &ED25519),
        }
    }
}

impl<'a> Token<'a> {
    /// Parses a token. A member that is there twice makes it malformed: two readers could take it differently.
    pub(super) fn parse(raw: &'a Secret) -> Result<Self, Error> {
        let (signed, signature) = raw.expose().rsplit_once('.').ok_or(Error::Malformed)?;
        let (header, claims) = signed.split_once('.').ok_or(Error::Malformed)?;
        let signature = URL_SAFE_NO_PAD.decode(signature).map_err(|_| Error::Malformed)?;
        let token = Self { header: part(header)?, claims: part(claims)?, signed, signature };
        let is_type = |given: &String| TYPES.contains(&&*given.to_ascii_lowercase());
        let Header { typ, cty, crit, .. } = &token.header;
        // Nested tokens are not read, and no extension is understood (RFC 7515, sections 4.1.10 and 4.1.11).
        if !typ.as_ref().is_none_or(is_type) || cty.is_some() || crit.is_some() {
            return Err(Error::Malformed);
        }
        Ok(token)
    }

    /// The algorithm of the signature, if it is one of these.
    pub(super) fn algorithm(&self, accepted: &[Algorithm]) -> Result<Algorithm, Error> {
        let name = &*self.header.alg;
        let named = Algorithm::ALL.iter().find(|(known, algorithm)| *known == name && accepted.contains(algorithm));
        let refused = if name == "none" { Error::Unsigned } else { Error::Algorithm };
        named.map(|(_, algorithm)| *algorithm).ok_or(refused)
    }

    /// Verifies the signature.
    pub(super) fn verify(&self, algorithm: Algorithm, keys: &[Value]) -> Result<(), Error> {
        let unfit = || Error::UnfitKey(UnfitKey::Algorithm);
        let (signed, signature) = (self.signed.as_bytes(), &*self.signature);
        let scheme = algorithm.scheme();
        let key = self.key(&scheme, keys)?;
        let bytes = |name| number(key, name).ok_or_else(unfit);
        let verified = match scheme {
            Scheme::Rsa(parameters) => {
                // Without leading zeros, which some providers write.
                let significant = |name| bytes(name).map(|all| all.into_iter().skip_while(|byte| *byte == 0).collect());
                let key = RsaPublicKeyComponents::<Vec<u8>> { n: significant("n")?, e: significant("e")? };
                key.verify(parameters, signed, signature)
            }
            Scheme::Curve(kind, curve, verification) => {
                if text(key, "crv") != Some(curve) {
                    return Err(unfit());
                }
                // RFC 5480, section 2.2: a point that is not compressed.
                let point = if kind == "EC" { [vec![4], bytes("x")?, bytes("y")?].concat() } else { bytes("x")? };
                let key = ParsedPublicKey::new(verification, point).map_err(|_| unfit())?;
                key.verify_sig(signed, signature)
            }
        };
        verified.map_err(|_| Error::Signature)
    }

    /// The only key that the signature may be of: that with the id in the header, if there is one there.
    fn key<'k>(&self, scheme: &Scheme, keys: &'k [Value]) -> Result<&'k Value, Error> {
        let kind = match scheme {
            Scheme::Rsa(_) => "RSA",
            Scheme::Curve(kind, ..) => kind,
        };
        let may_be = |key: &&Value, name: &str, wanted: &str| {
            key.get(name).filter(|value| !value.is_null()).is_none_or(|value| value == wanted)
        };
        let mut fitting = keys.iter().filter(|key| {
            self.header.kid.as_deref().is_none_or(|id| text(key, "kid") == Some(id))
                && text(key, "kty") == Some(kind)
                && may_be(key, "use", "sig")
                && may_be(key, "alg", &self.header.alg)
        });
        match (fitting.next(), fitting.next()) {
            (Some(key), None) => Ok(key),
            // It may be one that the provider added after the cached key set was read.
            _ => Err(Error::UnknownKey),
        }
    }
}

/// The claims of a token that need not be valid.
pub(super) fn unverified_claims(raw: &Secret) -> Result<Map<String, Value>, Error> {
    part(raw.expose().split('.').nth(1).ok_or(Error::Malformed)?)
}

/// Parses the header or the claims.
fn part<T: DeserializeOwned>(text: &str) -> Result<T, Error> {
    let json = URL_SAFE_NO_PAD.decode(text).map_err(|_| Error::Malformed)?;
    serde_json::from_slice::<Distinct>(&json).map_err(|_| Error::Malformed)?;
    // Objects alone: serde also reads structs from arrays.
    let object: Map<String, Value> = serde_json::from_slice(&json).map_err(|_| Error::Malformed)?;
    serde_json::from_value(Value::Object(object)).map_err(|_| Error::Malformed)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token(header: &str, claims: &str) -> Secret {
        let [header, claims] = [header, claims].map(|part| URL_SAFE_NO_PAD.encode(part));
        Secret::new(format!("{header}.{claims}.c2ln"))
    }

    #[test]
    fn header_has_known_members_once() {
        let is_read = |header: &str| Token::parse(&token(header, "{}")).is_ok();
        for good in [
            r#"{"alg":"RS256"}"#,
            r#"{"alg":"RS256","typ":"JWT","kid":"1","jwk":{},"x5c":[]}"#,
            r#"{"alg":"RS256","typ":"application/JOSE","kid":null,"crit":null}"#,
        ] {
            assert!(is_read(good), "{good}");
        }
        for bad in [
            r#"{"alg":"RS256","typ":"at+jwt"}"#,
            r#"{"alg":"RS256","typ":"application/jwt;a=b"}"#,
            r#"{"alg":"RS256","cty":"JWT"}"#,
            r#"{"alg":"RS256","crit":[]}"#,
            r#"{"alg":"RS256","crit":["exp"]}"#,
            r#"{"alg":"none","alg":"RS256"}"#,
            r#"{"alg":"RS256","x":{"a":1,"a":2}}"#,
            r#"{"alg":"RS256","kid":1}"#,
            r#"{"alg":["RS256"]}"#,
            r#"["RS256"]"#,
            "{}",
            "",
        ] {
            assert!(!is_read(bad), "{bad}");
        }
        for bad in [r#"{"sub":"a","sub":"b"}"#, r#"{"a":{"b":1,"\u0062":1}}"#, "[]", "null", "{} ."] {
            assert!(Token::parse(&token(r#"{"alg":"RS256"}"#, bad)).is_err(), "{bad}");
        }
    }

    #[test]
    fn token_has_three_parts_of_base64url() {
        let good = token(r#"{"alg":"RS256"}"#, "{}").expose().to_owned();
        assert!(Token::parse(&Secret::new(good.clone())).is_ok());
        let without_signature = good.rsplit_once('.').unwrap().0.to_owned();
        for bad in [
            without_signature,
            format!("{good}.e30"),
            format!("{good}."),
            format!("{good}="),
            format!(" {good}"),
            good.replacen('.', "..", 1),
            good.replace("c2ln", "c2l/"),
            String::new(),
        ] {
            assert!(Token::parse(&Secret::new(bad.clone())).is_err(), "{bad}");
        }
    }

    #[test]
    fn algorithm_is_one_that_is_accepted() {
        let chosen = |name: &str| {
            let raw = token(&format!("{{\"alg\":\"{name}\"}}"), "{}");
            Token::parse(&raw).unwrap().algorithm(&[Algorithm::Es256]).map_err(|error| error.reason())
        };
        assert_eq!(chosen("ES256"), Ok(Algorithm::Es256));
        assert_eq!(chosen("none"), Err("unsigned"));
        for other in ["RS256", "HS256", "NONE", "es256", "ES512", ""] {
            assert_eq!(chosen(other), Err("algorithm"), "{other}");
        }
    }
}
