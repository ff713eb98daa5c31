//! Redaction: removes the secrets of keys from foreign texts (paths, agents, messages) before they are logged or shown.

use std::borrow::Cow;

use percent_encoding::percent_decode;

use super::{KEY_ID_LENGTH, PREFIX};

/// Layers of percent-encoding that are looked through: by the client, by its library, by a proxy; and one more.
const ENCODINGS: usize = 5;
/// Fewest characters of a secret that are redacted: fewer are useless to an attacker, and might be a name.
const HIDDEN: usize = 20;

/// Redacts the secrets of all keys in a text: `sk_live_` and the key id stay, `_…` stands for the rest. A text without
/// keys is returned as it is, without a copy.
///
/// A key that was cut or mistyped is redacted too, as long as it has 20 characters of a secret. A text in which
/// percent-encoding (RFC 3986, section 2.1), once or several times over, hides a key is returned decoded.
pub fn redact(text: &[u8]) -> Cow<'_, [u8]> {
    let mut decoded = Cow::Borrowed(text);
    // Each round looks at one more layer of encoding; the first one that shows a key is the one that is returned.
    for _ in 0..ENCODINGS {
        if let Cow::Owned(redacted) = redact_plain(&decoded) {
            return Cow::Owned(redacted);
        }
        if !decoded.contains(&b'%') {
            break;
        }
        decoded = Cow::Owned(percent_decode(&decoded).collect());
    }
    Cow::Borrowed(text)
}

/// Redacts the keys of a text as it is, without decoding it.
fn redact_plain(text: &[u8]) -> Cow<'_, [u8]> {
    let mut out = Vec::new();
    let mut copied = 0;
    let mut from = 0;
    while let Some(at) = text[from..].windows(PREFIX.len()).position(|window| window == PREFIX.as_bytes()) {
        let begin = from + at;
        let secret = begin + PREFIX.len() + KEY_ID_LENGTH + 1;
        let length = secret_length(&text[begin..]);
        // A prefix without enough of a secret is not skipped whole: a key may begin within it.
        from = if length < HIDDEN { begin + 1 } else { secret + length };
        if length >= HIDDEN {
            out.extend_from_slice(&text[copied..secret]);
            out.extend_from_slice("…".as_bytes());
            copied = from;
        }
    }
    if copied == 0 {
        return Cow::Borrowed(text);
    }
    out.extend_from_slice(&text[copied..]);
    Cow::Owned(out)
}

/// Number of characters of the secret, checksum included, of a text that begins with the prefix; zero when it is no key.
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
        let twice = encoded.replace('%', "%25");
        for hidden in [&text.replace('_', "%5F"), &text.replacen('s', "%73", 1), &encoded, &twice] {
            assert_eq!(redacted_text(&format!("/a%20b/{hidden}?c")), format!("/a b/{shown}?c"), "{hidden}");
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
