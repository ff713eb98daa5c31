//! Patterns that claims of a subject token have to match.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Bytes of a pattern at most.
const MAX_LENGTH: usize = 512;
/// Known forms of subjects: their beginnings, and the segments after it that name the owner. Of GitHub, also with a
/// subject that the repository has composed; of GitLab; of Terraform and Buildkite; of CircleCI; of Kubernetes; of
/// SPIFFE, where it is `spiffe://DOMAIN/ns/NAMESPACE`.
const KNOWN_FORMS: [(&str, usize); 13] = [
    ("repo:", 1),
    ("repository:", 1),
    ("repository_id:", 1),
    ("repository_owner:", 1),
    ("repository_owner_id:", 1),
    ("project_path:", 1),
    ("project_id:", 1),
    ("namespace_path:", 1),
    ("namespace_id:", 1),
    ("organization:", 1),
    ("org/", 1),
    ("system:serviceaccount:", 1),
    ("spiffe://", 3),
];

/// Pattern that the text of a claim has to match as a whole.
///
/// - `*` stands for one or more characters of one segment: neither `/` nor `:` is among them.
/// - `**`, at the end alone, stands for the rest: one or more characters of any kind.
/// - Everything else stands for itself; upper and lower case differ.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct ClaimPattern(String);

/// Error: a text is not a pattern.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "a pattern is 1 to {MAX_LENGTH} bytes without control characters; `*` stands for characters of one segment, and \
     `**` at the end for the rest"
)]
pub struct InvalidPattern;

impl ClaimPattern {
    /// The pattern as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns whether a text matches.
    pub fn matches(&self, text: &str) -> bool {
        is_match(self.0.as_bytes(), text.as_bytes())
    }

    /// Returns whether it stands for one text only.
    pub fn is_exact(&self) -> bool {
        !self.0.contains('*')
    }

    /// Returns whether all subjects that match have the same owner: they are of a known form, and the first wildcard
    /// comes after the segments that name the owner.
    pub fn names_owner(&self) -> bool {
        let known = |(beginning, depth): &(&str, usize)| {
            let owner: Vec<&str> = self.0.strip_prefix(beginning)?.split([':', '/']).take(*depth).collect();
            Some(owner.len() == *depth && owner.iter().all(|segment| !segment.is_empty() && !segment.contains('*')))
        };
        KNOWN_FORMS.iter().find_map(known).unwrap_or(false)
    }
}

/// Matches byte by byte, in time bounded by the product of the two lengths. After a mismatch the last `*` takes one
/// byte more. Earlier ones need not: within a segment the last one can take what they would, and none leaves its own.
fn is_match(pattern: &[u8], text: &[u8]) -> bool {
    let mut at = 0;
    let mut read = 0;
    // The places behind the last `*`, and behind what it has taken.
    let mut last: Option<(usize, usize)> = None;
    loop {
        if &pattern[at..] == b"**" && read < text.len() {
            return true;
        }
        match (pattern.get(at), text.get(read)) {
            (None, None) => return true,
            (Some(b'*'), Some(byte)) if !is_separator(*byte) => {
                last = Some((at + 1, read + 1));
                at += 1;
                read += 1;
            }
            (Some(expected), Some(byte)) if expected == byte && *expected != b'*' => {
                at += 1;
                read += 1;
            }
            _ => match last {
                Some((behind, taken)) if text.get(taken).is_some_and(|byte| !is_separator(*byte)) => {
                    last = Some((behind, taken + 1));
                    at = behind;
                    read = taken + 1;
                }
                _ => return false,
            },
        }
    }
}

fn is_separator(byte: u8) -> bool {
    matches!(byte, b'/' | b':')
}

impl TryFrom<String> for ClaimPattern {
    type Error = InvalidPattern;

    fn try_from(text: String) -> Result<Self, InvalidPattern> {
        let head = text.strip_suffix("**").unwrap_or(&text);
        let is_valid = (1..=MAX_LENGTH).contains(&text.len())
            && !text.chars().any(char::is_control)
            && !head.contains("**")
            && (head.len() == text.len() || !head.ends_with('*'));
        if is_valid { Ok(Self(text)) } else { Err(InvalidPattern) }
    }
}

impl std::str::FromStr for ClaimPattern {
    type Err = InvalidPattern;

    fn from_str(text: &str) -> Result<Self, InvalidPattern> {
        text.to_owned().try_into()
    }
}

impl From<ClaimPattern> for String {
    fn from(pattern: ClaimPattern) -> Self {
        pattern.0
    }
}

impl fmt::Display for ClaimPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn pattern(text: &str) -> ClaimPattern {
        text.parse().unwrap()
    }

    #[test]
    fn wildcard_stays_within_its_segment() {
        let main = "repo:acme/*:ref:refs/heads/main";
        for (of, text, matches) in [
            (main, "repo:acme/app:ref:refs/heads/main", true),
            (main, "repo:acme/a.p-p_1:ref:refs/heads/main", true),
            (main, "repo:acme/:ref:refs/heads/main", false),
            (main, "repo:acme/app:ref:refs/heads/main2", false),
            (main, "xrepo:acme/app:ref:refs/heads/main", false),
            (main, "repo:acme2/app:ref:refs/heads/main", false),
            (main, "repo:ACME/app:ref:refs/heads/main", false),
            (main, "repo:acme/app:environment:x:ref:refs/heads/main", false),
            (main, "repo:acme/app:ref:refs/heads/x:ref:refs/heads/main", false),
            (main, "repo:evil/x:ref:repo:acme/app:ref:refs/heads/main", false),
            (main, "", false),
            ("repo:acme/app:**", "repo:acme/app:pull_request", true),
            ("repo:acme/app:**", "repo:acme/app:ref:refs/heads/a/b", true),
            ("repo:acme/app:**", "repo:acme/app:", false),
            ("repo:acme/app:**", "repo:acme/app2:ref", false),
            ("refs/heads/release-*", "refs/heads/release-1.2", true),
            ("refs/heads/release-*", "refs/heads/release-1/2", false),
            ("a*b*c", "a1b2b3c", true),
            ("a*b*c", "abc", false),
            ("a*b*c", "a1b2c3", false),
            ("*a**", "xaa", true),
            ("*", "one", true),
            ("*", "one/two", false),
            ("*", "*", true),
            ("exact", "exact", true),
            ("exact", "exac", false),
        ] {
            assert_eq!(pattern(of).matches(text), matches, "{of} {text}");
        }
    }

    #[test]
    fn owner_of_a_subject_is_fixed_before_the_first_wildcard() {
        for (text, fixed) in [
            ("repo:acme/*:ref:refs/heads/main", true),
            ("repo:acme/**", true),
            ("repo:acme/app*:**", true),
            ("project_path:acme/*:ref_type:branch:ref:main", true),
            ("organization:acme:pipeline:*:ref:**", true),
            ("org/0a1b/project/*/user/*", true),
            ("system:serviceaccount:ci:*", true),
            ("spiffe://example.org/ns/ci/**", true),
            ("123456", false),
            ("ref:refs/heads/main", false),
            ("ref:refs/heads/*", false),
            ("environment:prod:*", false),
            ("a/b/c/*", false),
            ("repository_owner_id:42:ref:refs/heads/*", true),
            ("repo:", false),
            ("repo:acme/app:pull_request", true),
            ("*", false),
            ("**", false),
            ("repo:*", false),
            ("repo:**", false),
            ("repo:*/app:ref:refs/heads/main", false),
            ("repo:ac*/app:ref:refs/heads/main", false),
            ("repo:acme*", false),
            ("repo:/*", false),
            ("project_path:*/app:**", false),
            ("system:serviceaccount:*", false),
            ("system:serviceaccount:*:deployer", false),
            ("system:serviceaccount:c*:deployer", false),
            ("system:*", false),
            ("spiffe://example.org/ns/*", false),
        ] {
            assert_eq!(pattern(text).names_owner(), fixed, "{text}");
        }
    }

    #[test]
    fn text_that_is_no_pattern_is_refused() {
        for text in ["", "a**b", "***", "a***", "**a", "a\nb", &"a".repeat(513)] {
            assert_eq!(text.parse::<ClaimPattern>(), Err(InvalidPattern), "{text}");
        }
        assert!(serde_json::from_str::<ClaimPattern>(r#""a**b""#).is_err());
    }

    /// The definition, without a thought to its time.
    fn is_match_by_definition(pattern: &[u8], text: &[u8]) -> bool {
        match pattern {
            [] => text.is_empty(),
            b"**" => !text.is_empty(),
            [b'*', rest @ ..] => (1..=text.len())
                .take_while(|taken| !is_separator(text[taken - 1]))
                .any(|taken| is_match_by_definition(rest, &text[taken..])),
            [expected, rest @ ..] => text.first() == Some(expected) && is_match_by_definition(rest, &text[1..]),
        }
    }

    proptest! {
        // Few texts at random are patterns that name an owner.
        #![proptest_config(ProptestConfig { max_global_rejects: 100_000, ..ProptestConfig::default() })]

        #[test]
        fn match_is_that_of_the_definition(of in "[ab*/:]{0,8}(\\*\\*)?", text in "[ab/:*]{0,10}") {
            prop_assume!(of.parse::<ClaimPattern>().is_ok());
            prop_assert_eq!(pattern(&of).matches(&text), is_match_by_definition(of.as_bytes(), text.as_bytes()));
        }

        /// The property that the check of the owner is for.
        #[test]
        fn subjects_of_two_owners_never_match_one_pattern(
            of in "(repo|project_path):[ab*]{0,3}[/:*]?[ab*/:]{0,6}", one in "[ab]{1,3}", other in "[ab]{1,3}",
            rest in "[/][ab/:]{0,5}", others in "[/][ab/:]{0,5}",
        ) {
            prop_assume!(one != other && of.parse::<ClaimPattern>().is_ok_and(|of| of.names_owner()));
            let kind = of.split(':').next().unwrap_or_default();
            let matches = |owner: &str, rest: &str| pattern(&of).matches(&format!("{kind}:{owner}{rest}"));
            prop_assert!(!(matches(&one, &rest) && matches(&other, &others)));
        }
    }
}
