//! Keys of the file: the text is hashed where it is read, and a text that no request could present is an error.

use data_encoding::BASE64;

use super::consumer::{Key, Place};
use super::field::Field;
use super::placeholder;
use super::report::Report;
use ::control::management;
use domain::key::{self, KeyDigest};
use domain::management_token;

/// Characters of a key below which it may be guessed.
pub(super) const MIN_LENGTH: usize = 16;

/// Hashes the text of a key, unless it is a reference or encrypted, which `flaw` finds, or a placeholder.
pub(super) fn digest(
    field: &Field<'_>,
    flaw: impl Fn(&str) -> Option<&'static str>,
    report: &mut Report,
) -> Option<KeyDigest> {
    let place = field.place();
    let Some(text) = field.text() else {
        report.error(&place, "is no text");
        return None;
    };
    let flaw = flaw(text).or_else(|| placeholder::flaw(text)).or_else(|| not_presentable(text.as_bytes()));
    if let Some(flaw) = flaw {
        report.error(&place, flaw);
        return None;
    }
    if text.len() < MIN_LENGTH {
        report.warn_short_key(&place);
    }
    checked(&place, KeyDigest::of(text.as_bytes()), report)
}

/// Decodes a digest: base64 of SHA-256, with its padding.
pub(super) fn decoded_digest(field: &Field<'_>, report: &mut Report) -> Option<KeyDigest> {
    let place = field.place();
    if let Some(flaw) = field.text().and_then(placeholder::flaw) {
        report.error(&place, flaw);
        return None;
    }
    let bytes = field.text().and_then(|text| BASE64.decode(text.as_bytes()).ok());
    let Some(bytes) = bytes.and_then(|bytes| <[u8; 32]>::try_from(bytes).ok()) else {
        report.error(
            &place,
            "is not the base64 of a SHA-256 of the whole key, 44 characters with `=` at the end; a hash of another \
             kind cannot be converted: create a new key",
        );
        return None;
    };
    checked(&place, KeyDigest::from_bytes(bytes), report)
}

/// Returns a key whose name is that of its consumer.
pub(super) fn key(place: Place, digest: KeyDigest) -> Key {
    Key { place, digest, name: None, limit: None, policy: None }
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
