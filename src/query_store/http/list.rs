//! The parameters of a list: `cursor` and `limit`, each at most once, and nothing else.

use std::borrow::Cow;

use super::refusal::Refusal;

/// Queries on a page when the client does not say.
const DEFAULT_LIMIT: usize = 20;
/// Queries on a page at most; a client that asks for more gets this many.
const MAX_LIMIT: usize = 100;

/// What a list was asked.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Parameters<'a> {
    /// The token of the page before.
    pub(super) cursor: Option<Cow<'a, str>>,
    /// 1 to [`MAX_LIMIT`].
    pub(super) limit: usize,
}

/// Reads the query part of a URI.
pub(super) fn parameters(query: &str) -> Result<Parameters<'_>, Refusal> {
    let (mut cursor, mut limit) = (None, None);
    for (name, value) in form_urlencoded::parse(query.as_bytes()) {
        let known = match &*name {
            "cursor" => &mut cursor,
            "limit" => &mut limit,
            _ => return Err(Refusal::UnknownParameter { name: name.into_owned() }),
        };
        if known.replace(value).is_some() {
            return Err(Refusal::RepeatedParameter { name: name.into_owned() });
        }
    }
    let limit = limit.map_or(Ok(DEFAULT_LIMIT), |text| read_limit(&text).ok_or(Refusal::Limit))?;
    Ok(Parameters { cursor, limit })
}

/// A limit in decimal digits; however large, it is served as [`MAX_LIMIT`] at most.
fn read_limit(text: &str) -> Option<usize> {
    if text.is_empty() || !text.bytes().all(|c| c.is_ascii_digit()) {
        return None;
    }
    // Only digits: what does not fit is too large, not wrong.
    let limit = text.parse().unwrap_or(usize::MAX);
    (limit >= 1).then_some(limit.min(MAX_LIMIT))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limit(query: &str) -> Option<usize> {
        parameters(query).ok().map(|parameters| parameters.limit)
    }

    #[test]
    fn limits_are_capped_and_integers() {
        assert_eq!(limit(""), Some(20));
        for (text, expected) in
            [("1", 1), ("007", 7), ("100", 100), ("101", 100), ("1000", 100), ("99999999999999999999", 100), ("%32", 2)]
        {
            assert_eq!(limit(&format!("limit={text}")), Some(expected), "{text}");
        }
        for text in ["", "0", "00", "-1", "%2B1", "+1", "abc", "1.0", "1e2", "0x10", "1%20", "%D9%A3", "true"] {
            assert_eq!(limit(&format!("limit={text}")), None, "{text}");
        }
    }

    #[test]
    fn unknown_and_repeated_parameters_are_refused() {
        assert_eq!(parameters("cursor=abc&limit=5").unwrap(), Parameters { cursor: Some("abc".into()), limit: 5 });
        for query in ["offset=5", "page=2", "Limit=5", "limit=5&offset=0", "x", "=1"] {
            assert!(matches!(parameters(query), Err(Refusal::UnknownParameter { .. })), "{query}");
        }
        for query in ["limit=5&limit=5", "cursor=a&cursor=a", "limit=5&%6Cimit=5"] {
            assert!(matches!(parameters(query), Err(Refusal::RepeatedParameter { .. })), "{query}");
        }
    }
}
