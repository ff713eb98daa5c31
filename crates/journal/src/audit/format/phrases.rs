//! Phrases of user agents, which are short in compact lines: a backslash and a capital letter.
//!
//! Browsers say much the same: of their hundred bytes, ten tell one from another. Each line has all that it means, so
//! a lost or removed line takes nothing from others; a user agent that was written once in a segment and referred to
//! by later lines would.
//!
//! No escaped text has a backslash before a capital letter (`escape`). The table is part of the format: phrases may be
//! added, and none may be changed.

use std::borrow::Cow;

/// The first bytes of the user agents of browsers. Others have no phrases.
const BROWSER: &str = "Mozilla/5.0 (";

/// Letters and their phrases. Where several fit, the first one is taken: the longer ones come first.
pub(crate) const PHRASES: [(char, &str); 14] = [
    ('A', "Mozilla/5.0 (Windows NT 10.0; Win64; x64"),
    ('B', "Mozilla/5.0 (Macintosh; Intel Mac OS X 10_15_7"),
    ('C', "Mozilla/5.0 (Macintosh; Intel Mac OS X 10.15"),
    ('D', "Mozilla/5.0 (X11; Linux x86_64"),
    ('E', "Mozilla/5.0 (Linux; Android 10; K"),
    ('F', "Mozilla/5.0 (iPhone; CPU iPhone OS "),
    ('G', "Mozilla/5.0 ("),
    ('H', ") AppleWebKit/537.36 (KHTML, like Gecko) Chrome/"),
    ('I', ".0.0.0 Safari/537.36"),
    ('J', ".0.0.0 Mobile Safari/537.36"),
    ('K', ") AppleWebKit/605.1.15 (KHTML, like Gecko) Version/"),
    ('L', " like Mac OS X) AppleWebKit/605.1.15 (KHTML, like Gecko) Version/"),
    ('M', " Safari/605.1.15"),
    ('N', ") Gecko/20100101 Firefox/"),
];

/// Shortens an escaped text.
pub(crate) fn shorten(text: &str) -> Cow<'_, str> {
    if !text.starts_with(BROWSER) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        match PHRASES.iter().find_map(|(letter, phrase)| Some((letter, rest.strip_prefix(phrase)?))) {
            Some((letter, after)) => {
                out.extend(['\\', *letter]);
                rest = after;
            }
            None => {
                out.push(first);
                rest = &rest[first.len_utf8()..];
            }
        }
    }
    Cow::Owned(out)
}

/// The escaped text that was shortened to this; `None` when a phrase is not known.
pub(crate) fn expand(text: &str) -> Option<Cow<'_, str>> {
    // Only a text that begins with a phrase has others.
    if !text.starts_with('\\') || !text[1..].starts_with(|letter: char| letter.is_ascii_uppercase()) {
        return Some(Cow::Borrowed(text));
    }
    let mut out = String::with_capacity(text.len() * 4);
    let mut rest = text;
    while let Some(at) = rest.find('\\') {
        let (before, escape) = rest.split_at(at);
        out.push_str(before);
        let letter = escape[1..].chars().next()?;
        rest = &escape[1 + letter.len_utf8()..];
        if letter.is_ascii_uppercase() {
            out.push_str(PHRASES.iter().find(|(other, _)| *other == letter)?.1);
        } else {
            // An escape, of which the second backslash is a part.
            out.extend(['\\', letter]);
        }
    }
    out.push_str(rest);
    Some(Cow::Owned(out))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::audit::format::escape::{USER_AGENT_CAP, escape_capped};

    const CHROME: &str =
        "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/126.0.0.0 Safari/537.36";

    #[test]
    fn user_agents_of_browsers_are_short() {
        let cases = [
            (CHROME, "\\D\\H126\\I"),
            (
                "Mozilla/5.0 (Windows NT 10.0; Win64; x64; rv:128.0) Gecko/20100101 Firefox/128.0",
                "\\A; rv:128.0\\N128.0",
            ),
            ("Mozilla/5.0 (compatible; bingbot/2.0)", "\\Gcompatible; bingbot/2.0)"),
            ("curl/8.5.0", "curl/8.5.0"),
            ("Opera Mozilla/5.0 (", "Opera Mozilla/5.0 ("),
            ("", ""),
        ];
        for (text, short) in cases {
            assert_eq!(shorten(text), short);
            assert_eq!(expand(short).as_deref(), Some(text));
        }
        assert_eq!(expand("\\Dx\\Z"), None, "an unknown phrase");
        assert_eq!(expand("\\D\\"), None);
    }

    /// Lines are read for as long as there are any.
    #[test]
    fn table_is_part_of_the_format() {
        let table: String = PHRASES.iter().map(|(letter, phrase)| format!("{letter}{phrase}\n")).collect();
        assert_eq!((PHRASES.len(), crc32fast::hash(table.as_bytes())), (14, 0xc740_a3ce));
    }

    proptest! {
        #[test]
        fn every_user_agent_comes_back(
            parts in prop::collection::vec(
                prop_oneof![
                    prop::sample::select(PHRASES.to_vec()).prop_map(|(_, phrase)| phrase.as_bytes().to_vec()),
                    prop::collection::vec(any::<u8>(), 0..10),
                    prop::sample::select(vec!["\\", "\\A", "\\\\", "Mozilla/5.0 (",
                        "é"]).prop_map(|text| text.as_bytes().to_vec()),
                ],
                0..8,
            ),
            is_browser: bool,
        ) {
            let start = if is_browser { BROWSER.as_bytes().to_vec() } else { Vec::new() };
            let agent = [start, parts.concat()].concat();
            let escaped = escape_capped(&agent, USER_AGENT_CAP);
            let short = shorten(&escaped);
            prop_assert!(short.len() <= escaped.len() && !short.contains('\t'));
            let expanded = expand(&short);
            prop_assert_eq!(expanded.as_deref(), Some(&*escaped));
        }

        #[test]
        fn any_text_is_expanded_or_refused(text in "(\\\\[A-Z])?.{0,30}") {
            expand(&text);
        }
    }
}
