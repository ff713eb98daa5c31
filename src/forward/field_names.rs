//! The names of fields: which the gateway alone may say to the upstream, and which some server could misread.

use http::{HeaderMap, HeaderName};

/// What the gateway alone may say to the upstream, and what it alone may hear.
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

/// Removes every field whose name is reserved, or not plain; says how many names were not.
///
/// Servers that fold names (`X_User_Id` into `HTTP_X_USER_ID`) fold those that are not plain, and only those.
pub(super) fn remove_reserved(headers: &mut HeaderMap) -> usize {
    let removed: Vec<HeaderName> =
        headers.keys().filter(|name| is_reserved(name.as_str()) || !is_plain(name.as_str())).cloned().collect();
    removed.iter().for_each(|name| drop(headers.remove(name)));
    removed.iter().filter(|name| !is_plain(name.as_str())).count()
}

/// Whether a name consists of letters, digits and `-` alone.
pub(super) fn is_plain(name: &str) -> bool {
    name.bytes().fold(true, |plain, byte| plain & (byte.is_ascii_alphanumeric() | (byte == b'-')))
}

/// Whether a plain field name, which the HTTP library has lower-cased, is a reserved one.
pub(super) fn is_reserved(name: &str) -> bool {
    name.starts_with(RESERVED_FAMILY) || RESERVED.contains(&name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_spelling_is_removed() {
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
    fn others_stay() {
        for name in ["x-user-idx", "xx-user-id", "x-user", "accept", "user-agent", "x-forwarded", "viaa", "xuserid"] {
            let mut headers = HeaderMap::new();
            headers.append(HeaderName::from_static(name), "1".parse().unwrap());
            assert_eq!((remove_reserved(&mut headers), headers.len()), (0, 1), "{name}");
        }
    }
}
