//! Names of fields that clients send and the upstream does not get: reserved ones, which only the gateway sets, claims that
//! upstreams are known to believe, and those that some server could misread.
//!
//! An ordinary field costs one look-up by its length, first and last byte, and two comparisons of its first bytes; nothing is
//! allocated unless a field is removed.

use http::{HeaderMap, HeaderName};

use super::untrusted_fields::{CLAIM_FAMILIES, CLAIMS, IDENTITIES, IDENTITY_FAMILIES};
use crate::http_syntax;

/// Names of fields that only the gateway sets, and of those that only the gateway reads.
const RESERVED: &[&str] = &[
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
/// Beginning of reserved names: the gateway sets some of the family, and an upstream may trust any of it.
const RESERVED_FAMILY: &str = "x-forwarded-";
/// Fields for one connection only that clients send without naming them in `Connection`. `HTTP2-Settings` would let an
/// upstream switch to HTTP/2 (RFC 7540, section 3.2.1; RFC 9113, section 3.1).
const CONNECTION: &[&str] = &["http2-settings"];

/// Reason why a field does not reach the upstream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Removal {
    /// Only the gateway sets it or reads it, or it would name the caller.
    Reserved,
    /// The client claims something that upstreams are known to believe.
    Claim,
    /// It is for one connection only.
    Connection,
}

impl Removal {
    /// Reason to remove the field of a plain, lower-case name; none for a field that is forwarded.
    pub(super) fn of(name: &str) -> Option<Self> {
        if name.starts_with(RESERVED_FAMILY) {
            return Some(Self::Reserved);
        }
        if is_listed(name) {
            let lists = [(RESERVED, Self::Reserved), (IDENTITIES, Self::Reserved), (CONNECTION, Self::Connection)];
            let exact = lists.into_iter().find(|(list, _)| list.contains(&name)).map(|(_, removal)| removal);
            if let Some(removal) = exact.or_else(|| CLAIMS.contains(&name).then_some(Self::Claim)) {
                return Some(removal);
            }
        }
        if !may_begin_family(name) {
            return None;
        }
        let begins = |families: &[&str]| families.iter().any(|family| name.starts_with(family));
        match begins(IDENTITY_FAMILIES) {
            true => Some(Self::Reserved),
            false => begins(CLAIM_FAMILIES).then_some(Self::Claim),
        }
    }
}

/// Removes from a request every field that the upstream must not get, except the claims that `passed` lets through. Returns
/// how many names were not plain.
///
/// Servers that fold names (`X_User_Id` into `HTTP_X_USER_ID`) fold only names that are not plain.
pub(super) fn remove_untrusted(headers: &mut HeaderMap, passed: &[HeaderName]) -> usize {
    remove(headers, |name| match Removal::of(name.as_str()) {
        Some(Removal::Claim) => !passed.contains(name),
        other => other.is_some(),
    })
}

/// Removes every field whose name is reserved, or not plain. Returns how many names were not plain.
pub(super) fn remove_reserved(headers: &mut HeaderMap) -> usize {
    remove(headers, |name| is_reserved(name.as_str()))
}

fn remove(headers: &mut HeaderMap, is_removed: impl Fn(&HeaderName) -> bool) -> usize {
    let removed: Vec<HeaderName> = headers.keys().filter(|name| is_removed(name) || !is_plain(name)).cloned().collect();
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

/// Longest listed name, and one.
const LENGTHS: usize = 32;
/// For each length, the first and the last letters of the listed names, a bit each. Few other names share all three.
const LETTERS: [(u32, u32); LENGTHS] = letters(&[RESERVED, CLAIMS, IDENTITIES, CONNECTION]);

/// Returns whether a name may be in one of the lists; false for nearly all others.
fn is_listed(name: &str) -> bool {
    let [first, .., last] = name.as_bytes() else { return false };
    LETTERS.get(name.len()).is_some_and(|(firsts, lasts)| firsts & letter(*first) != 0 && lasts & letter(*last) != 0)
}

/// Returns whether a name begins with the two bytes of some family.
fn may_begin_family(name: &str) -> bool {
    matches!(name.as_bytes(), [b'x', b'-', ..] | [b'c', b'f', ..] | [b's', b's', ..])
}

const fn letter(byte: u8) -> u32 {
    1 << (byte & 31)
}

const fn letters(lists: &[&[&str]]) -> [(u32, u32); LENGTHS] {
    let mut letters = [(0, 0); LENGTHS];
    let mut list = 0;
    while list < lists.len() {
        let mut i = 0;
        while i < lists[list].len() {
            let name = lists[list][i].as_bytes();
            letters[name.len()].0 |= letter(name[0]);
            letters[name.len()].1 |= letter(name[name.len() - 1]);
            i += 1;
        }
        list += 1;
    }
    letters
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reserved_name_is_removed_in_every_spelling() {
        for name in RESERVED.iter().copied().chain(["x-forwarded-for", "x-forwarded-proto", "x-forwarded-whatever"]) {
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
        for name in ["x-user-idx", "xx-user-id", "x-user", "accept", "user-agent", "x-forward", "viaa", "xuserid"] {
            let mut headers = HeaderMap::new();
            headers.append(HeaderName::from_static(name), "1".parse().unwrap());
            assert_eq!((remove_reserved(&mut headers), headers.len()), (0, 1), "{name}");
            assert_eq!((remove_untrusted(&mut headers, &[]), headers.len()), (0, 1), "{name}");
        }
    }

    #[test]
    fn every_listed_name_is_found_by_the_look_up() {
        let families = |families: &[&str]| families.iter().map(|family| format!("{family}any")).collect::<Vec<_>>();
        let names = |list: &[&str]| list.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        for (list, removal) in [
            (names(RESERVED), Removal::Reserved),
            (names(IDENTITIES), Removal::Reserved),
            (families(IDENTITY_FAMILIES), Removal::Reserved),
            (families(&[RESERVED_FAMILY]), Removal::Reserved),
            (names(CLAIMS), Removal::Claim),
            (families(CLAIM_FAMILIES), Removal::Claim),
            (names(CONNECTION), Removal::Connection),
        ] {
            for name in list {
                assert_eq!(Removal::of(&name), Some(removal), "{name}");
                assert!(http_syntax::is_plain_name(name.as_bytes()) && name == name.to_lowercase(), "{name}");
            }
        }
    }

    #[test]
    fn fields_of_ordinary_requests_are_not_searched_for_in_the_lists() {
        for name in ["host", "user-agent", "accept", "accept-encoding", "accept-language", "content-type", "cookie"] {
            assert!(!is_listed(name) && !may_begin_family(name), "{name}");
        }
    }

    #[test]
    fn claim_passes_only_by_its_name() {
        let passed = ["x-real-ip", "x-envoy-attempt-count"].map(HeaderName::from_static);
        let names = ["x-real-ip", "x-envoy-attempt-count", "x-client-ip", "x-envoy-retry-on", "x-user-id", "accept"];
        let mut headers = HeaderMap::new();
        names.iter().for_each(|name| drop(headers.insert(HeaderName::from_static(name), "1".parse().unwrap())));
        remove_untrusted(&mut headers, &passed);
        let left: Vec<_> = headers.keys().map(HeaderName::as_str).collect();
        assert_eq!(left, ["x-real-ip", "x-envoy-attempt-count", "accept"]);
    }
}
