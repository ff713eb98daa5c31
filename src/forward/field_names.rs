//! Names of fields: reserved ones, which only the gateway sets, and those that some server could misread.

use http::{HeaderMap, HeaderName};

use crate::http_syntax;

/// Names of fields that only the gateway sets, and of those that only the gateway reads.
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
/// Prefix of reserved names: the gateway sets some of the family, and an upstream may trust any of it.
const RESERVED_FAMILY: &str = "x-forwarded-";

/// Removes every field whose name is reserved, or not plain. Returns how many names were not plain.
///
/// Servers that fold names (`X_User_Id` into `HTTP_X_USER_ID`) fold only names that are not plain.
pub(super) fn remove_reserved(headers: &mut HeaderMap) -> usize {
    let removed: Vec<HeaderName> =
        headers.keys().filter(|name| is_reserved(name.as_str()) || !is_plain(name)).cloned().collect();
    removed.iter().for_each(|name| drop(headers.remove(name)));
    removed.iter().filter(|name| !is_plain(name)).count()
}

/// Returns whether every server reads a name as this one alone.
pub(super) fn is_plain(name: &HeaderName) -> bool {
    http_syntax::is_plain_name(name.as_str().as_bytes())
}

/// Returns whether a plain name is reserved. The HTTP library has lower-cased it.
fn is_reserved(name: &str) -> bool {
    name.starts_with(RESERVED_FAMILY) || RESERVED.contains(&name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reserved_name_is_removed_in_every_spelling() {
        for name in RESERVED.into_iter().chain(["x-forwarded-for", "x-forwarded-proto", "x-forwarded-whatever"]) {
            for separator in ['-', '_', '.', '!', '~', '|', '^', '`', '\'', '*', '+', '%', '$', '&', '#'] {
                let spelled = name.replace('-', &separator.to_string());
                for spelled in [spelled.to_uppercase(), spelled] {
                    let mut headers = HeaderMap::new();
                    headers.append(HeaderName::from_bytes(spelled.as_bytes()).unwrap(), "forged".parse().unwrap());
                    let unread = usize::from(spelled.contains(|c: char| !c.is_ascii_alphanumeric() && c != '-'));
                    assert_eq!(remove_reserved(&mut headers), unread, "{spelled}");
                    assert!(headers.is_empty(), "{spelled}");
                }
            }
        }
    }

    #[test]
    fn other_names_are_kept() {
        for name in ["x-user-idx", "xx-user-id", "x-user", "accept", "user-agent", "x-forwarded", "viaa", "xuserid"] {
            let mut headers = HeaderMap::new();
            headers.append(HeaderName::from_static(name), "1".parse().unwrap());
            assert_eq!((remove_reserved(&mut headers), headers.len()), (0, 1), "{name}");
        }
    }
}
