//! Redaction: removes the secrets of keys and of management tokens from foreign texts (paths, agents, messages) before
//! they are logged or shown.
//!
//! Both kinds are found by the end of their prefix. Nearly every text has none, which is seen by reading many bytes at
//! a time.

use std::borrow::Cow;

use super::{KEY_ID_LENGTH, PREFIX};
use crate::management_token::{self, TokenId};

/// Fewest characters of a secret that are redacted: fewer are useless to an attacker, and might be a name.
const HIDDEN: usize = 20;

/// Redacts the secrets of all keys and management tokens in a text: the prefix and the id stay, `_…` stands for the
/// rest. A text without them is returned as it is, without a copy.
///
/// One that was cut or mistyped is redacted too, as long as it has 20 characters of a secret. Each character
/// may be percent-encoded (RFC 3986, section 2.1), any number of times over, in any mix; what surrounds the
/// credential stays as it was.
pub fn redact(text: &[u8]) -> Cow<'_, [u8]> {
    if !text.contains(&b'%') {
        return redact_decoded(text, text, |at| at);
    }
    let Decoded { bytes, starts } = Decoded::new(text);
    redact_decoded(text, &bytes, |at| starts.get(at).copied().unwrap_or(text.len()))
}

/// A text with every percent-encoding decoded, until none is left.
struct Decoded {
    bytes: Vec<u8>,
    /// For each byte, where its encoding begins in the text.
    starts: Vec<usize>,
}

impl Decoded {
    /// Decodes from left to right, each byte once: a decoded byte may complete the encoding of another one. No two
    /// encodings overlap, so the order of decoding does not matter.
    fn new(text: &[u8]) -> Self {
        let mut decoded = Self { bytes: Vec::with_capacity(text.len()), starts: Vec::with_capacity(text.len()) };
        for (at, byte) in text.iter().enumerate() {
            decoded.bytes.push(*byte);
            decoded.starts.push(at);
            while decoded.decode_last() {}
        }
        decoded
    }

    /// Replaces the last three bytes by the one that they encode. Returns false when they encode none.
    fn decode_last(&mut self) -> bool {
        let [.., b'%', high, low] = self.bytes[..] else { return false };
        let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
        let (Some(high), Some(low)) = (digit(high), digit(low)) else { return false };
        let first = self.bytes.len() - 3;
        self.bytes.truncate(first + 1);
        self.starts.truncate(first + 1);
        self.bytes[first] = high << 4 | low;
        true
    }
}

/// The place of a credential's secret in a text.
struct Secret {
    /// Beginning of the prefix.
    credential: usize,
    start: usize,
    end: usize,
}

impl Secret {
    /// The secret of the credential `<prefix><id>_<secret>` whose prefix ends before `id`; `None` when there is none,
    /// or not enough of it.
    fn find(text: &[u8], id: usize) -> Option<Self> {
        let alphanumeric = |from: usize| text[from..].iter().take_while(|c| c.is_ascii_alphanumeric()).count();
        let (prefix, id_length) = match &text[..id] {
            before if before.ends_with(PREFIX.as_bytes()) => (PREFIX, KEY_ID_LENGTH),
            before if before.ends_with(management_token::PREFIX.as_bytes()) => {
                (management_token::PREFIX, TokenId::LENGTH)
            }
            _ => return None,
        };
        let behind = id + id_length;
        (alphanumeric(id) == id_length && text.get(behind) == Some(&b'_')).then_some(())?;
        let start = behind + 1;
        let length = alphanumeric(start);
        (length >= HIDDEN).then_some(Self { credential: id - prefix.len(), start, end: start + length })
    }
}

/// Quick test before the search: both prefixes end in one of two letters and `_`. Looks at all bytes without a branch,
/// which the processor does for many at a time.
fn may_have_prefix(text: &[u8]) -> bool {
    let pairs = text.iter().zip(text.get(1..).unwrap_or_default());
    pairs.fold(false, |any, (letter, next)| any | ((*letter == b'e') | (*letter == b'm')) & (*next == b'_'))
}

/// Redacts the credentials of a text, as they are found in its decoded form. `start` is the place of a
/// decoded byte in the text.
fn redact_decoded<'a>(text: &'a [u8], decoded: &[u8], start: impl Fn(usize) -> usize) -> Cow<'a, [u8]> {
    if !may_have_prefix(decoded) {
        return Cow::Borrowed(text);
    }
    let mut out = Vec::new();
    // The decoded text before this place was copied, or is a secret.
    let mut done = 0;
    for (at, _) in decoded.iter().enumerate().filter(|(_, byte)| **byte == b'_') {
        let Some(secret) = Secret::find(decoded, at + 1) else { continue };
        // A credential right behind another one has the beginning of its prefix in the secret of that one.
        let shown = secret.credential.max(done);
        out.extend_from_slice(&text[start(done)..start(shown)]);
        out.extend_from_slice(&decoded[shown..secret.start]);
        out.extend_from_slice("…".as_bytes());
        done = secret.end;
    }
    if done == 0 {
        return Cow::Borrowed(text);
    }
    out.extend_from_slice(&text[start(done)..]);
    Cow::Owned(out)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::{KeyId, OrgTag, PlainKey};
    use super::*;
    use crate::management_token::PlainToken;

    /// A key, and what is shown of it.
    fn key() -> (String, String) {
        let key = PlainKey::generate(KeyId::generate(OrgTag::generate().unwrap()).unwrap()).unwrap();
        (key.expose().expose().to_owned(), format!("sk_live_{}_…", key.id()))
    }

    /// A management token, and what is shown of it.
    fn token() -> (String, String) {
        let token = PlainToken::generate().unwrap();
        (token.expose().expose().to_owned(), format!("kgm_{}_…", token.id()))
    }

    fn redacted_text(text: &str) -> String {
        String::from_utf8(redact(text.as_bytes()).into_owned()).unwrap()
    }

    fn percent_encoded(text: &str) -> String {
        text.bytes().map(|byte| format!("%{byte:02x}")).collect()
    }

    #[test]
    fn secrets_are_redacted() {
        for (text, shown) in [key(), token()] {
            let text = &*text;
            assert_eq!(redacted_text(text), shown);
            assert_eq!(redacted_text(&format!("a {text}/{text}!")), format!("a {shown}/{shown}!"));
            assert_eq!(redacted_text(&format!("sk_live_{text}")), format!("sk_live_{shown}"));
            assert_eq!(redacted_text(&text[..40]), shown, "a cut one is redacted too");
            let encoded = percent_encoded(text);
            let again = |text: &str, times: usize| (0..times).fold(text.to_owned(), |text, _| text.replace('%', "%25"));
            let (plain_part, rest) = text.split_at(45);
            let cut_within = percent_encoded(rest).to_uppercase();
            let mixed: String =
                text.bytes().enumerate().map(|(n, byte)| again(&format!("%{byte:02x}"), n % 7)).collect();
            for hidden in [
                &text.replace('_', "%5F"),
                &text.replacen(['s', 'k'], &format!("%{:02x}", text.as_bytes()[0]), 1),
                &encoded,
                &again(&encoded, 1),
                &again(&encoded, 40),
                &format!("{plain_part}{cut_within}"),
                &mixed,
                &encoded.replace("%5f", "%%35%66").replace("%6b", "%6%62"),
            ] {
                assert_eq!(redacted_text(&format!("/a%20b/{hidden}?c%2")), format!("/a%20b/{shown}?c%2"), "{hidden}");
                assert_eq!(redacted_text(&format!("/{text}/%41{hidden}")), format!("/{shown}/%41{shown}"), "{hidden}");
            }
        }
    }

    #[test]
    fn text_without_a_secret_is_not_copied() {
        for plain in [
            "",
            "_",
            "m_",
            "sk_live_",
            "sk_live_abcDEF123",
            "sk_live_abcDEF123_short",
            "kgm_",
            "kgm_AbcDEF1239",
            "kgm_AbcDEF1239_short",
            "/a%20b%zz%",
            &format!("sk-live_{}", &key().0[8..]),
            &format!("kg_{}", &token().0[4..]),
            &format!("kgm_{}", &key().0[8..]),
            &format!("sk_live_{}", &token().0[4..]),
        ] {
            assert!(matches!(super::redact(plain.as_bytes()), Cow::Borrowed(_)), "{plain}");
        }
    }

    #[derive(Clone, Debug)]
    enum Piece {
        Key,
        Token,
        Text(String),
    }

    fn any_piece() -> impl Strategy<Value = Piece> {
        prop_oneof![
            Just(Piece::Key),
            Just(Piece::Token),
            "[a-zA-Z0-9]{0,30}".prop_map(Piece::Text),
            prop::sample::select(vec!["sk_live_", "kgm_", "sk_", "_", "%", "%5", "/", "kgm_AbcDEF1239_", "é"])
                .prop_map(|text| Piece::Text(text.to_owned())),
        ]
    }

    proptest! {
        #[test]
        fn no_secret_is_left_whatever_surrounds_it(
            pieces in prop::collection::vec((any_piece(), any::<bool>()), 0..8),
        ) {
            let mut text = String::new();
            let mut secrets = Vec::new();
            for (piece, is_encoded) in pieces {
                let credential = match piece {
                    Piece::Key => key().0,
                    Piece::Token => token().0,
                    Piece::Text(plain) => {
                        text.push_str(&plain);
                        continue;
                    }
                };
                secrets.push(credential[credential.len() - 49..].to_owned());
                text.push_str(&if is_encoded { percent_encoded(&credential) } else { credential });
            }
            let shown = redact(text.as_bytes());
            let decoded = String::from_utf8_lossy(&Decoded::new(&shown).bytes).into_owned();
            for secret in &secrets {
                prop_assert!(!decoded.contains(&secret[..HIDDEN]), "{} of {}", decoded, text);
                prop_assert!(!decoded.contains(&secret[49 - HIDDEN..]), "{} of {}", decoded, text);
            }
            // Credentials that are shown already are not changed again.
            prop_assert_eq!(redact(&shown).into_owned(), shown.into_owned());
        }
    }
}
