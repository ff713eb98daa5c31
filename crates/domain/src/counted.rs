//! Counts with their nouns, in messages.

use std::fmt;

/// A count with its noun: `1 error`, `2 errors`, `3 queries`.
#[derive(Clone, Copy, Debug)]
pub struct Counted<N>(pub N, pub &'static str);

/// The same, of a field of an error.
pub fn counted<N: Copy>(count: &N, noun: &'static str) -> Counted<N> {
    Counted(*count, noun)
}

impl<N: fmt::Display + From<u8> + PartialEq> fmt::Display for Counted<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(count, noun) = self;
        let has_vowel = |stem: &str| stem.ends_with(['a', 'e', 'o', 'u']);
        match noun.strip_suffix('y') {
            _ if *count == N::from(1) => write!(f, "{count} {noun}"),
            Some(stem) if !has_vowel(stem) => write!(f, "{count} {stem}ies"),
            _ => write!(f, "{count} {noun}s"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn noun_is_singular_for_one_only() {
        let text = |count: usize, noun| Counted(count, noun).to_string();
        assert_eq!([0, 1, 2, 11].map(|count| text(count, "error")), ["0 errors", "1 error", "2 errors", "11 errors"]);
        assert_eq!(
            [text(1, "key"), text(2, "key"), text(1, "query"), text(2, "query")],
            ["1 key", "2 keys", "1 query", "2 queries"]
        );
        assert_eq!(Counted(-1_i64, "day").to_string(), "-1 days");
    }
}
