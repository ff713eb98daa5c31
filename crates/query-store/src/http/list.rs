//! Parameters of a list: `cursor` and `limit`, each at most once, and no others.

use std::borrow::Cow;

use super::request_error::RequestError;
use domain::page::PageLimit;

/// The parameters of a list.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Parameters<'a> {
    /// The cursor from the page before.
    pub(super) cursor: Option<Cow<'a, str>>,
    /// Number of queries on the page at most.
    pub(super) limit: PageLimit,
}

/// Parses the query part of a URI.
pub(super) fn parse_parameters(query: &str) -> Result<Parameters<'_>, RequestError> {
    let mut cursor = None;
    let mut limit = None;
    for (name, value) in form_urlencoded::parse(query.as_bytes()) {
        let known = match &*name {
            "cursor" => &mut cursor,
            "limit" => &mut limit,
            _ => return Err(RequestError::UnknownParameter { name: name.into_owned() }),
        };
        if known.replace(value).is_some() {
            return Err(RequestError::RepeatedParameter { name: name.into_owned() });
        }
    }
    let limit =
        limit.map_or(Ok(PageLimit::default()), |text| PageLimit::parse(&text).map_err(|_| RequestError::Limit))?;
    Ok(Parameters { cursor, limit })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limit(query: &str) -> Option<usize> {
        parse_parameters(query).ok().map(|parameters| parameters.limit.get())
    }

    #[test]
    fn limits_are_integers_and_capped() {
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
        assert_eq!(
            parse_parameters("cursor=abc&limit=5").unwrap(),
            Parameters { cursor: Some("abc".into()), limit: PageLimit::of(5) }
        );
        for query in ["offset=5", "page=2", "Limit=5", "limit=5&offset=0", "x", "=1"] {
            assert!(matches!(parse_parameters(query), Err(RequestError::UnknownParameter { .. })), "{query}");
        }
        for query in ["limit=5&limit=5", "cursor=a&cursor=a", "limit=5&%6Cimit=5"] {
            assert!(matches!(parse_parameters(query), Err(RequestError::RepeatedParameter { .. })), "{query}");
        }
    }
}
