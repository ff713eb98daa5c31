//! Key set of a provider (JWKS, RFC 7517), without the keys that no signature is accepted of.
//!
//! That a key fits the algorithm of a token is checked with the token ([`super::jws`]). What is wrong with a key by
//! itself is found here: its size, the curve that its algorithm needs, `key_ops`, and a private part.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::Deserialize;
use serde_json::Value;

use super::error::Error;
use super::unfit_key::{MAX_RSA_BITS, MIN_RSA_BITS, UnfitKey};
use domain::secret::Secret;

/// Keys of a provider.
#[derive(Debug)]
pub(super) struct KeySet {
    /// Those that signatures are accepted of.
    pub(super) keys: Vec<Value>,
    /// The others, by their ids.
    refused: Vec<(Option<String>, UnfitKey)>,
}

/// The document.
#[derive(Deserialize)]
struct KeyDocument {
    keys: Vec<Value>,
}

impl KeySet {
    /// Parses a key set.
    pub(super) fn parse(body: &[u8]) -> Result<Self, serde_json::Error> {
        let KeyDocument { mut keys } = serde_json::from_slice(body)?;
        let mut refused = Vec::new();
        // Those of other types are of no algorithm that is accepted.
        keys.retain(|key| matches!(text(key, "kty"), Some("RSA" | "EC" | "OKP")));
        keys.retain(|key| {
            let flaw = flaw(key);
            refused.extend(flaw.map(|flaw| (text(key, "kid").map(str::to_owned), flaw)));
            flaw.is_none()
        });
        Ok(Self { keys, refused })
    }

    /// The keys that no signature is accepted of, with their ids.
    pub(super) fn refused(&self) -> &[(Option<String>, UnfitKey)] {
        &self.refused
    }

    /// Names the flaw of the key that a token is signed with, where its key is unknown because of one.
    pub(super) fn explain(&self, error: Error, raw: &Secret) -> Error {
        if !matches!(error, Error::UnknownKey) {
            return error;
        }
        let id = key_id(raw);
        // Without an id, the token may be of any key.
        let mut refused = self.refused.iter().filter(|(refused, _)| id.is_none() || *refused == id);
        refused.next().map_or(error, |(_, flaw)| Error::UnfitKey(*flaw))
    }
}

/// The flaw of a key for which all its signatures are refused.
fn flaw(key: &Value) -> Option<UnfitKey> {
    if key.get("d").is_some() {
        return Some(UnfitKey::Private);
    }
    let verifies = |operations: &Value| operations.as_array().is_some_and(|list| list.contains(&"verify".into()));
    if key.get("key_ops").is_some_and(|operations| !verifies(operations)) {
        return Some(UnfitKey::Operations);
    }
    match text(key, "kty") {
        Some("RSA") => rsa_flaw(key),
        Some("EC") => {
            let needed = match text(key, "alg") {
                Some("ES256") => "P-256",
                Some("ES384") => "P-384",
                Some("ES512") => "P-521",
                // No algorithm, or one that is not of curves: it is compared with that of the token.
                _ => return None,
            };
            (text(key, "crv") != Some(needed)).then_some(UnfitKey::Curve)
        }
        _ => None,
    }
}

fn rsa_flaw(key: &Value) -> Option<UnfitKey> {
    let size = number(key, "n").map_or(0, |modulus| bits(&modulus));
    if !(MIN_RSA_BITS..=MAX_RSA_BITS).contains(&size) {
        return Some(UnfitKey::Size(size));
    }
    let exponent = number(key, "e").unwrap_or_default();
    let is_odd = exponent.last().is_some_and(|last| last % 2 == 1);
    (!is_odd || bits(&exponent) < 2).then_some(UnfitKey::Exponent)
}

/// Bits of a number, without leading zeros.
fn bits(number: &[u8]) -> usize {
    let significant = number.iter().skip_while(|byte| **byte == 0);
    let zeros = significant.clone().next().map_or(0, |first| first.leading_zeros() as usize);
    significant.count() * 8 - zeros
}

/// A number of a key (RFC 7518, section 2: base64url of its bytes, the highest first).
pub(super) fn number(key: &Value, name: &str) -> Option<Vec<u8>> {
    URL_SAFE_NO_PAD.decode(text(key, name)?.trim_end_matches('=')).ok()
}

pub(super) fn text<'a>(object: &'a Value, name: &str) -> Option<&'a str> {
    object.get(name).and_then(Value::as_str)
}

/// `kid` of a token that need not be valid.
fn key_id(raw: &Secret) -> Option<String> {
    let header = URL_SAFE_NO_PAD.decode(raw.expose().split('.').next()?.trim_end_matches('=')).ok()?;
    let header: Value = serde_json::from_slice(&header).ok()?;
    text(&header, "kid").map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn rsa_keys_have_2048_to_4096_bits() {
        for (leading, bytes, flaw) in [
            (0x80, 256, None),
            (0x7f, 256, Some(UnfitKey::Size(2047))),
            (0xff, 255, Some(UnfitKey::Size(2040))),
            (0x80, 128, Some(UnfitKey::Size(1024))),
            (0x01, 1, Some(UnfitKey::Size(1))),
            (0x00, 256, Some(UnfitKey::Size(0))),
            (0xff, 512, None),
            (0x01, 513, Some(UnfitKey::Size(4097))),
        ] {
            let rest = if leading == 0 { 0 } else { 0xff };
            let modulus = [vec![0, leading], vec![rest; bytes - 1]].concat();
            let key = json!({"kty": "RSA", "n": URL_SAFE_NO_PAD.encode(modulus), "e": "AQAB"});
            assert_eq!(super::flaw(&key), flaw, "{leading:x} {bytes}");
        }
        assert_eq!(super::flaw(&json!({"kty": "RSA"})), Some(UnfitKey::Size(0)));
    }
}
