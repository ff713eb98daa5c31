//! The reserved names: what the gateway alone may say to the upstream, and what it alone may hear.

use http::{HeaderMap, HeaderName};

/// Reserved names, in the form to which received names are brought before they are compared.
const RESERVED: [&str; 9] = [
    "x-user-id",
    "x-org-id",
    "x-key-id",
    "x-permissions",
    "x-auth-method",
    "x-request-id",
    "via",
    "forwarded",
    "authorization",
];
/// A whole family is reserved: the gateway sets some of its members, and an upstream may believe any.
const RESERVED_FAMILY: &str = "x-forwarded-";
/// Names longer than the longest reserved one need a look only for the family.
const LONGEST: usize = 13;

/// Removes every field whose name some server could read as a reserved one.
pub(super) fn remove(headers: &mut HeaderMap) {
    let names: Vec<HeaderName> = headers.keys().filter(|name| is_reserved(name.as_str())).cloned().collect();
    for name in names {
        headers.remove(name);
    }
}

/// Whether a field name, which the HTTP library has lower-cased, is a reserved one in some spelling.
pub(super) fn is_reserved(name: &str) -> bool {
    let folded = |byte: u8| if byte.is_ascii_alphanumeric() { byte.to_ascii_lowercase() } else { b'-' };
    let same = |reserved: &str| name.bytes().map(folded).eq(reserved.bytes());
    let family = name.len() >= RESERVED_FAMILY.len()
        && name.bytes().map(folded).zip(RESERVED_FAMILY.bytes()).all(|(a, b)| a == b);
    family || (name.len() <= LONGEST && RESERVED.iter().any(|reserved| reserved.len() == name.len() && same(reserved)))
}

/// Compile-time witness that the longest reserved name is what [`LONGEST`] says.
const _: () = {
    let mut i = 0;
    while i < RESERVED.len() {
        assert!(RESERVED[i].len() <= LONGEST);
        i += 1;
    }
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_spelling_is_reserved() {
        for name in RESERVED.into_iter().chain(["x-forwarded-for", "x-forwarded-proto", "x-forwarded-host"]) {
            for separator in ['-', '_', '.', '!', '~', '|', '^', '`', '\'', '*', '+', '%', '$', '&', '#'] {
                let spelled = name.replace('-', &separator.to_string());
                assert!(is_reserved(&spelled), "{spelled}");
                assert!(is_reserved(&spelled.to_uppercase()), "{spelled}");
            }
        }
    }

    #[test]
    fn others_are_not() {
        for name in ["x-user-idx", "xx-user-id", "x-user", "accept", "user-agent", "x-forwarded", "viaa", "xuserid"] {
            assert!(!is_reserved(name), "{name}");
        }
    }
}
