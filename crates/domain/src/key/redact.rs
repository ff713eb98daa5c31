//! Redaction: removes the secrets of keys from foreign texts (paths, agents, messages) before they are logged or shown.

use std::borrow::Cow;

use super::{KEY_ID_LENGTH, PREFIX};

/// Fewest characters of a secret that are redacted: fewer are useless to an attacker, and might be a name.
const HIDDEN: usize = 20;

/// Redacts the secrets of all keys in a text: `sk_live_` and the key id stay, `_…` stands for the rest. A text without
/// keys is returned as it is, without a copy.
///
/// A key that was cut or mistyped is redacted too, as long as it has 20 characters of a secret. Each character
/// may be percent-encoded (RFC 3986, section 2.1), any number of times over, in any mix; what surrounds the
/// key stays as it was.
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

/// Redacts the keys of a text, as they are found in its decoded form. `start` is the place of a
/// decoded byte in the text.
fn redact_decoded<'a>(text: &'a [u8], decoded: &[u8], start: impl Fn(usize) -> usize) -> Cow<'a, [u8]> {
    let mut out = Vec::new();
    let mut copied = 0;
    let mut from = 0;
    while let Some(at) = decoded[from..].windows(PREFIX.len()).position(|window| window == PREFIX.as_bytes()) {
        let begin = from + at;
        let secret = begin + PREFIX.len() + KEY_ID_LENGTH + 1;
        let length = secret_length(&decoded[begin..]);
        // A prefix without enough of a secret is not skipped whole: a key may begin within it.
        from = if length < HIDDEN { begin + 1 } else { secret + length };
        if length >= HIDDEN {
            out.extend_from_slice(&text[copied..start(begin)]);
            out.extend_from_slice(&decoded[begin..secret]);
            out.extend_from_slice("…".as_bytes());
            copied = start(from);
        }
    }
    if copied == 0 {
        return Cow::Borrowed(text);
    }
    out.extend_from_slice(&text[copied..]);
    Cow::Owned(out)
}

/// Number of characters of the secret, checksum included, of a text that begins with the prefix;
/// zero when it is no key.
fn secret_length(text: &[u8]) -> usize {
    let alphanumeric = |text: &[u8]| text.iter().take_while(|c| c.is_ascii_alphanumeric()).count();
    let body = &text[PREFIX.len()..];
    if alphanumeric(body) != KEY_ID_LENGTH || body.get(KEY_ID_LENGTH) != Some(&b'_') {
        return 0;
    }
    alphanumeric(&body[KEY_ID_LENGTH + 1..])
}

#[cfg(test)]
mod tests {
    use super::super::{KeyId, OrgTag, PlainKey};
    use super::*;

    #[test]
    fn secrets_are_redacted() {
        let key = PlainKey::generate(KeyId::generate(OrgTag::generate().unwrap()).unwrap()).unwrap();
        let text = key.expose().expose();
        let redacted_text = |text: &str| String::from_utf8(redact(text.as_bytes()).into_owned()).unwrap();
        let shown = format!("sk_live_{}_…", key.id());
        assert_eq!(redacted_text(text), shown);
        assert_eq!(redacted_text(&format!("a {text}/{text}!")), format!("a {shown}/{shown}!"));
        assert_eq!(redacted_text(&format!("sk_live_{text}")), format!("sk_live_{shown}"));
        assert_eq!(redacted_text(&text[..40]), shown, "a cut key is redacted too");
        let encoded: String = text.bytes().map(|byte| format!("%{byte:02x}")).collect();
        let again = |text: &str, times: usize| (0..times).fold(text.to_owned(), |text, _| text.replace('%', "%25"));
        let (plain_part, rest) = text.split_at(45);
        let cut_within: String = rest.bytes().map(|byte| format!("%{byte:02X}")).collect();
        let mixed: String = text.bytes().enumerate().map(|(n, byte)| again(&format!("%{byte:02x}"), n % 7)).collect();
        for hidden in [
            &text.replace('_', "%5F"),
            &text.replacen('s', "%73", 1),
            &encoded,
            &again(&encoded, 1),
            &again(&encoded, 40),
            &format!("{plain_part}{cut_within}"),
            &mixed,
            &encoded.replace("%5f", "%%35%66").replace("%73", "%7%33"),
        ] {
            assert_eq!(redacted_text(&format!("/a%20b/{hidden}?c%2")), format!("/a%20b/{shown}?c%2"), "{hidden}");
            assert_eq!(redacted_text(&format!("/{text}/%41{hidden}")), format!("/{shown}/%41{shown}"), "{hidden}");
        }
        for plain in [
            "",
            "sk_live_",
            "sk_live_abcDEF123",
            "sk_live_abcDEF123_short",
            "/a%20b%zz%",
            &format!("sk-live_{}", &text[8..]),
        ] {
            assert!(matches!(super::redact(plain.as_bytes()), Cow::Borrowed(_)), "{plain}");
        }
    }
}
