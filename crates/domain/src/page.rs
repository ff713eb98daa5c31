//! Pages: the one shape of every list, and the parameters that ask for a page.
//!
//! - A response is `{"items": […], "nextCursor": "…"}`; `nextCursor` is left out on the last page.
//! - `limit` is 20 by default. More than 100 is served as 100; less than 1, or no whole number, is an error.

use serde::{Deserialize, Serialize};

/// Entries on a page by default.
const DEFAULT_LIMIT: usize = 20;
/// Entries on a page at most: bounds what one request makes the service read.
const MAX_LIMIT: usize = 100;
/// The largest number up to which every whole number is a floating-point number of its own.
const EXACT: f64 = 9_007_199_254_740_992.0;

/// Page of a list. `N` is what the next page begins at: the text of a cursor, or a position within the service.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Page<T, N = String> {
    /// The entries, in the order of the list.
    pub items: Vec<T>,
    /// Begin of the next page; none on the last page.
    #[serde(rename = "nextCursor", skip_serializing_if = "Option::is_none")]
    pub next: Option<N>,
}

/// Parameters of a page.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PageQuery {
    /// `nextCursor` of the page before; none for the first page.
    pub cursor: Option<String>,
    /// Entries on the page at most.
    pub limit: PageLimit,
}

/// Number of entries on a page: 1 to 100. In JSON a whole number of at least 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "serde_json::Number")]
pub struct PageLimit(usize);

/// Error: the text or number is not a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`limit` must be a whole number of at least 1; more than 100 is served as 100")]
pub struct InvalidPageLimit;

/// Error: the text is not a cursor that was made for this list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`cursor` is none of this list with these filters; begin without one")]
pub struct InvalidCursor;

impl<T, N> Page<T, N> {
    /// The first `limit` of the entries that were found, where one entry more says that another page follows.
    pub fn cut(mut items: Vec<T>, limit: usize, position: impl FnOnce(&T) -> N) -> Self {
        let more = items.len() > limit;
        items.truncate(limit);
        let next = items.last().filter(|_| more).map(position);
        Self { items, next }
    }

    /// The same page of other entries.
    pub fn map<U>(self, map: impl FnMut(T) -> U) -> Page<U, N> {
        Page { items: self.items.into_iter().map(map).collect(), next: self.next }
    }
}

impl PageQuery {
    /// The first page, with this many entries at most.
    pub fn first(limit: PageLimit) -> Self {
        Self { cursor: None, limit }
    }
}

impl PageLimit {
    /// The largest limit.
    pub const MAX: Self = Self(MAX_LIMIT);

    /// A limit of so many entries, at least 1 and at most 100.
    pub const fn of(entries: usize) -> Self {
        if entries < 1 {
            Self(1)
        } else if entries > MAX_LIMIT {
            Self::MAX
        } else {
            Self(entries)
        }
    }

    /// Parses a limit in decimal digits.
    ///
    /// # Errors
    /// [`InvalidPageLimit`] for anything else, and for 0.
    pub fn parse(text: &str) -> Result<Self, InvalidPageLimit> {
        if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(InvalidPageLimit);
        }
        // All digits, so it can only fail to parse by being too large.
        match text.parse().unwrap_or(usize::MAX) {
            0 => Err(InvalidPageLimit),
            limit => Ok(Self::of(limit)),
        }
    }

    /// The number of entries.
    pub fn get(self) -> usize {
        self.0
    }
}

impl Default for PageLimit {
    fn default() -> Self {
        Self(DEFAULT_LIMIT)
    }
}

impl TryFrom<serde_json::Number> for PageLimit {
    type Error = InvalidPageLimit;

    /// As JSON Schema defines integers: `20.0` is one, too.
    fn try_from(number: serde_json::Number) -> Result<Self, InvalidPageLimit> {
        let limit = match (number.as_u64(), number.as_f64()) {
            (Some(limit), _) => usize::try_from(limit).unwrap_or(usize::MAX),
            // Beyond EXACT, every floating-point number is whole.
            (None, Some(float)) if float >= EXACT => usize::MAX,
            #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it is whole and below 2^53")]
            (None, Some(float)) if float.fract() == 0.0 && float >= 0.0 => float as usize,
            _ => 0,
        };
        if limit == 0 { Err(InvalidPageLimit) } else { Ok(Self::of(limit)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_whole_numbers_and_capped() {
        assert_eq!(PageLimit::default().get(), 20);
        for (text, expected) in
            [("1", 1), ("007", 7), ("100", 100), ("101", 100), ("1000", 100), ("99999999999999999999", 100)]
        {
            assert_eq!(PageLimit::parse(text).map(PageLimit::get), Ok(expected), "{text}");
        }
        for text in ["", "0", "00", "-1", "+1", "abc", "1.0", "1e2", "0x10", "1 ", "٣", "true"] {
            assert_eq!(PageLimit::parse(text), Err(InvalidPageLimit), "{text}");
        }
    }

    #[test]
    fn limits_in_json_are_those_of_parameters() {
        let read = |text| serde_json::from_str::<PageLimit>(text).ok().map(PageLimit::get);
        for (text, expected) in [("1", 1), ("20.0", 20), ("1e2", 100), ("101", 100), ("1e300", 100)] {
            assert_eq!(read(text), Some(expected), "{text}");
        }
        assert_eq!(read("99999999999999999999"), Some(100));
        for text in ["0", "0.0", "-1", "1.5", "\"20\"", "null", "true"] {
            assert_eq!(read(text), None, "{text}");
        }
    }

    #[test]
    fn last_page_has_no_next_cursor() {
        let page = |count: usize| Page::cut((0..count).collect(), 2, |last| last.to_string());
        let json = |page: &Page<usize>| serde_json::to_string(page).unwrap();
        assert_eq!(json(&page(3)), r#"{"items":[0,1],"nextCursor":"1"}"#);
        assert_eq!(json(&page(2)), r#"{"items":[0,1]}"#);
        assert_eq!(json(&page(0)), r#"{"items":[]}"#);
        assert_eq!(serde_json::from_str::<Page<usize>>(&json(&page(3))).unwrap(), page(3));
        assert_eq!(serde_json::from_str::<Page<usize>>(&json(&page(2))).unwrap(), page(2));
    }
}
