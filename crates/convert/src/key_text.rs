//! Keys of the file: the text is hashed where it is read, and a text that no request could present is an error.

use data_encoding::{BASE64, HEXLOWER_PERMISSIVE};

use super::field::Field;
use super::options::{Dialect, Options};
use super::placeholder;
use super::report::{MIN_LENGTH, Place, Report};
use super::table::ENCRYPTED;
use control::management;
use domain::key::{self, KeyDigest};
use domain::management_token;

/// Hashes the text of a key, unless it is a reference, encrypted, or a placeholder.
pub(crate) fn digest(field: &Field<'_>, options: Options, report: &mut Report) -> Option<KeyDigest> {
    let place = field.place();
    let Some(text) = field.text() else {
        report.error(&place, "is no text");
        return None;
    };
    let flaw = match options.dialect {
        Dialect::Kong => reference_flaw(text),
        Dialect::Apisix => flaw(text, options.plain_keys),
        Dialect::Unkey | Dialect::Kubernetes | Dialect::Agentgateway | Dialect::Openapi => None,
    };
    let flaw = flaw.or_else(|| placeholder::flaw(text)).or_else(|| not_presentable(text.as_bytes()));
    if let Some(flaw) = flaw {
        report.error(&place, flaw);
        return None;
    }
    if text.len() < MIN_LENGTH {
        report.warn_short_key(&place);
    }
    checked(&place, KeyDigest::of(text.as_bytes()), report)
}

/// Decodes a digest: of Unkey, base64 of SHA-256, with its padding; else `sha256:` and hexadecimal digits.
pub(crate) fn decoded_digest(field: &Field<'_>, options: Options, report: &mut Report) -> Option<KeyDigest> {
    let place = field.place();
    if let Some(flaw) = field.text().and_then(placeholder::flaw) {
        report.error(&place, flaw);
        return None;
    }
    let (bytes, kind) = match options.dialect {
        Dialect::Unkey => (
            field.text().and_then(|text| BASE64.decode(text.as_bytes()).ok()),
            "is not the base64 of a SHA-256 of the whole key, 44 characters with `=` at the end; a hash of another \
             kind cannot be converted: create a new key",
        ),
        _ => (
            field.text().and_then(|text| HEXLOWER_PERMISSIVE.decode(text.strip_prefix("sha256:")?.as_bytes()).ok()),
            "is not `sha256:` and the 64 hexadecimal digits of the whole key's SHA-256; a hash of another kind cannot \
             be converted: create a new key",
        ),
    };
    let Some(bytes) = bytes.and_then(|bytes| <[u8; 32]>::try_from(bytes).ok()) else {
        report.error(&place, kind);
        return None;
    };
    checked(&place, KeyDigest::from_bytes(bytes), report)
}

/// Refuses a digest that an import would refuse.
fn checked(place: &Place, digest: KeyDigest, report: &mut Report) -> Option<KeyDigest> {
    match management::check_digest(&digest.to_hex()) {
        Ok(digest) => Some(digest),
        Err(_) => {
            report.error(place, "is the key of an example, which everybody may know; create another one");
            None
        }
    }
}

/// Reason for which no request could present a text as a key, if there is one.
fn not_presentable(text: &[u8]) -> Option<&'static str> {
    if text.is_empty() {
        return Some("is empty, so no request can present it");
    }
    if text.len() > key::MAX_PRESENTED {
        return Some("is longer than 512 characters, so no request can present it; create another key");
    }
    if !key::has_key_characters(text) {
        return Some(
            "has a space, a line break, or a character other than visible ASCII, so no request can present it; create \
             another key",
        );
    }
    if management_token::parse(text).is_some() {
        return Some("is a management token of keygate, which is no API key");
    }
    let mistyped = "has the form of keygate's own keys, with a wrong checksum, so it would be refused; correct it";
    key::is_mistyped(text).then_some(mistyped)
}

/// Reason for which a text of Kong is no key, but stands for one.
fn reference_flaw(text: &str) -> Option<&'static str> {
    if text.starts_with("{vault://") {
        return Some("is a reference to a vault; write the key itself");
    }
    if text.contains("${{") || text.starts_with("${env") {
        return Some(placeholder::OF_DECK);
    }
    text.starts_with("$ke$").then_some(ENCRYPTED)
}

/// Reason for which a text of APISIX is no key, but stands for one.
fn flaw(text: &str, plain_keys: bool) -> Option<&'static str> {
    let has_scheme = |scheme: &str| text.get(..scheme.len()).is_some_and(|start| start.eq_ignore_ascii_case(scheme));
    if has_scheme("$secret://") {
        return Some("is a reference to a secret manager; write the key itself");
    }
    if has_scheme("$env://") || text.starts_with("${{") {
        return Some("is a reference to an environment variable; write the key itself");
    }
    let encrypted = "looks encrypted (base64 of whole blocks of AES), as etcd has it; take the answer of the Admin \
                     API, or pass --plain-keys when clients present it as it is";
    (!plain_keys && looks_encrypted(text)).then_some(encrypted)
}

/// Returns whether a text is as APISIX stores encrypted fields: AES-CBC in base64. Hexadecimal keys and encoded text
/// are not taken for it.
fn looks_encrypted(text: &str) -> bool {
    let is_hex = text.bytes().all(|c| c.is_ascii_hexdigit());
    let decoded = BASE64.decode(text.as_bytes()).unwrap_or_default();
    let is_text = decoded.iter().all(|c| c.is_ascii_graphic() || *c == b' ');
    !is_hex && !decoded.is_empty() && decoded.len().is_multiple_of(16) && !is_text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn encrypted_field_is_told_from_a_key() {
        for encrypted in ["csdt8UPw76/SG+WlHBoFeg==", "mNh3RQ8mQbqGzwq7yXbJ0pJb5Cq0L0m9YVfVUQ1yJ0E="] {
            assert!(looks_encrypted(encrypted), "{encrypted}");
        }
        let hex = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";
        for key in ["auth-one", "", "edd1c9f034335f136f87ad84b625c8f1", hex, "dXNlci0xMjM0NTY3ODkwMQ==", "AAECAwQ="] {
            assert!(!looks_encrypted(key), "{key}");
        }
    }

    #[test]
    fn reference_of_apisix_is_told_from_a_key() {
        for reference in ["$secret://vault/1/key", "$SECRET://x", "$env://KEY", "${{KEY}}"] {
            assert!(flaw(reference, true).is_some(), "{reference}");
        }
        for key in ["secret", "$env:/KEY", "\u{e4}\u{e4}\u{e4}\u{e4}\u{e4}"] {
            assert!(flaw(key, false).is_none(), "{key}");
        }
    }

    #[test]
    fn reference_of_kong_is_told_from_a_key() {
        for reference in ["{vault://env/key}", "${{ env \"DECK_KEY\" }}", "$ke$1$-abc"] {
            assert!(reference_flaw(reference).is_some(), "{reference}");
        }
        for key in ["my-key", "{vault}", "$ke", "vault://env/key"] {
            assert!(reference_flaw(key).is_none(), "{key}");
        }
    }
}
