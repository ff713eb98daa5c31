//! Taking the secrets of keys out of texts that strangers wrote, before they are recorded or shown.

use std::borrow::Cow;

use percent_encoding::percent_decode;

use super::{KEY_ID_LENGTH, PREFIX};

/// How often a text may have been encoded: by the client, by what it uses, by a proxy; and once more.
const ENCODINGS: usize = 5;
/// Characters of a secret from which on it is hidden: fewer are worth nothing, and might be a name.
const HIDDEN: usize = 20;

/// A text without the secrets of the keys in it: of each, only `sk_live_` and the id stay, and `_…` for the rest. What
/// holds none is not copied.
///
/// A key that was cut, or mistyped, is one too, as long as enough of its secret is there to be worth hiding. A text in
/// which percent-encoding (RFC 3986, section 2.1), once or several times over, hides a key is decoded.
pub fn redacted(text: &[u8]) -> Cow<'_, [u8]> {
    let mut decoded = Cow::Borrowed(text);
    for _ in 0..ENCODINGS {
        if let Cow::Owned(hidden) = without_keys(&decoded) {
            return Cow::Owned(hidden);
        }
        if !decoded.contains(&b'%') {
            break;
        }
        decoded = Cow::Owned(percent_decode(&decoded).collect());
    }
    Cow::Borrowed(text)
}

fn without_keys(text: &[u8]) -> Cow<'_, [u8]> {
    let mut out = Vec::new();
    let mut copied = 0;
    let mut from = 0;
    while let Some(at) = text[from..].windows(PREFIX.len()).position(|window| window == PREFIX.as_bytes()) {
        let begin = from + at;
        let secret = begin + PREFIX.len() + KEY_ID_LENGTH + 1;
        let length = secret_length(&text[begin..]);
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

/// Characters of the secret, checksum included, of what begins like a key; zero when it is none.
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
    fn secrets_are_taken_out_of_texts() {
        let key = PlainKey::generate(KeyId::generate(OrgTag::generate().unwrap()).unwrap()).unwrap();
        let text = key.expose().expose();
        let redacted = |text: &str| String::from_utf8(redacted(text.as_bytes()).into_owned()).unwrap();
        let shown = format!("sk_live_{}_…", key.id());
        assert_eq!(redacted(text), shown);
        assert_eq!(redacted(&format!("a {text}/{text}!")), format!("a {shown}/{shown}!"));
        assert_eq!(redacted(&format!("sk_live_{text}")), format!("sk_live_{shown}"));
        assert_eq!(redacted(&text[..40]), shown, "what is left of a key is hidden too");
        let encoded: String = text.bytes().map(|byte| format!("%{byte:02x}")).collect();
        let twice = encoded.replace('%', "%25");
        for hidden in [&text.replace('_', "%5F"), &text.replacen('s', "%73", 1), &encoded, &twice] {
            assert_eq!(redacted(&format!("/a%20b/{hidden}?c")), format!("/a b/{shown}?c"), "{hidden}");
        }
        for plain in [
            "",
            "sk_live_",
            "sk_live_abcDEF123",
            "sk_live_abcDEF123_short",
            "/a%20b%zz%",
            &format!("sk-live_{}", &text[8..]),
        ] {
            assert!(matches!(super::redacted(plain.as_bytes()), Cow::Borrowed(_)), "{plain}");
        }
    }
}
