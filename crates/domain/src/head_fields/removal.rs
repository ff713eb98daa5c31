//! Names of client fields that the upstream does not get: reserved ones, which only the gateway sets, spoofable ones,
//! which upstreams commonly trust, and those for one connection.
//!
//! An ordinary name costs one look-up by its length, first and last byte, and two comparisons of its first bytes.

use super::untrusted::{IDENTITIES, IDENTITY_PREFIXES, SPOOFABLE, SPOOFABLE_PREFIXES};

/// Names of fields that only the gateway sets, and of those that only the gateway reads.
pub const RESERVED: &[&str] = &[
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
/// Prefix of reserved names: the gateway sets some of them, and an upstream may trust any of them.
const RESERVED_PREFIX: &str = "x-forwarded-";
/// Fields for one connection only that clients send without naming them in `Connection`. `HTTP2-Settings` would let an
/// upstream switch to HTTP/2 (RFC 7540, section 3.2.1; RFC 9113, section 3.1).
const CONNECTION: &[&str] = &["http2-settings"];
/// Longest listed name, and one.
const LENGTHS: usize = 32;
/// Filter of the names in the lists.
const LISTED: Filter = Filter::new(&[RESERVED, SPOOFABLE, IDENTITIES, CONNECTION]);

/// Reason why a field does not reach the upstream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Removal {
    /// Only the gateway sets it or reads it, or it would name the caller.
    Reserved,
    /// Upstreams commonly trust it, and any client can send it.
    Spoofable,
    /// It is for one connection only.
    Connection,
}

impl Removal {
    /// Reason to remove the field of a plain name, in any case; none for a field that is forwarded.
    pub fn of(name: &[u8]) -> Option<Self> {
        if LISTED.may_contain(name) {
            let lists = [
                (RESERVED, Self::Reserved),
                (IDENTITIES, Self::Reserved),
                (CONNECTION, Self::Connection),
                (SPOOFABLE, Self::Spoofable),
            ];
            let listed = lists.into_iter().find(|(list, _)| contains(list, name)).map(|(_, removal)| removal);
            if listed.is_some() {
                return listed;
            }
        }
        if !may_have_prefix(name) {
            return None;
        }
        if begins(name, RESERVED_PREFIX) || IDENTITY_PREFIXES.iter().any(|prefix| begins(name, prefix)) {
            return Some(Self::Reserved);
        }
        SPOOFABLE_PREFIXES.iter().any(|prefix| begins(name, prefix)).then_some(Self::Spoofable)
    }
}

/// Returns whether a plain name, in any case, is one that only the gateway sets or reads.
pub fn is_reserved(name: &[u8]) -> bool {
    begins(name, RESERVED_PREFIX) || contains(RESERVED, name)
}

pub(super) fn contains(list: &[&str], name: &[u8]) -> bool {
    list.iter().any(|listed| listed.as_bytes().eq_ignore_ascii_case(name))
}

pub(super) fn begins(name: &[u8], prefix: &str) -> bool {
    name.get(..prefix.len()).is_some_and(|start| start.eq_ignore_ascii_case(prefix.as_bytes()))
}

/// Returns whether a name begins with the three bytes of some prefix; true of few other names.
fn may_have_prefix(name: &[u8]) -> bool {
    match name {
        [b'x' | b'X', b'-', third, ..] => X_PREFIXES & letter(*third) != 0,
        [b'c' | b'C', b'f' | b'F', ..] | [b's' | b'S', b's' | b'S', ..] => true,
        _ => false,
    }
}

/// Third letters of the prefixes that begin with `x-`, a bit each.
const X_PREFIXES: u32 = third_letters(&[&[RESERVED_PREFIX], IDENTITY_PREFIXES, SPOOFABLE_PREFIXES]);

const fn third_letters(lists: &[&[&str]]) -> u32 {
    let mut letters = 0;
    let mut list = 0;
    while list < lists.len() {
        let mut i = 0;
        while i < lists[list].len() {
            letters |= letter(lists[list][i].as_bytes()[2]);
            i += 1;
        }
        list += 1;
    }
    letters
}

/// Filter of names: for each length, the first and the last letters of the listed ones, a bit each. Few other
/// names share all three.
pub(super) struct Filter([(u32, u32); LENGTHS]);

impl Filter {
    pub(super) const fn new(lists: &[&[&str]]) -> Self {
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
        Self(letters)
    }

    /// Returns whether a name, in any case, may be in one of the lists; false for nearly all others.
    pub(super) const fn may_contain(&self, name: &[u8]) -> bool {
        let [first, .., last] = name else { return false };
        if name.len() >= LENGTHS {
            return false;
        }
        let (firsts, lasts) = self.0[name.len()];
        firsts & letter(*first) != 0 && lasts & letter(*last) != 0
    }
}

/// Bit of a letter, the same for both cases.
const fn letter(byte: u8) -> u32 {
    1 << (byte & 31)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http_syntax;

    #[test]
    fn every_listed_name_is_found_by_the_look_up() {
        let prefixes = |prefixes: &[&str]| prefixes.iter().map(|prefix| format!("{prefix}any")).collect::<Vec<_>>();
        let names = |list: &[&str]| list.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        for (list, removal) in [
            (names(RESERVED), Removal::Reserved),
            (names(IDENTITIES), Removal::Reserved),
            (prefixes(IDENTITY_PREFIXES), Removal::Reserved),
            (prefixes(&[RESERVED_PREFIX]), Removal::Reserved),
            (names(SPOOFABLE), Removal::Spoofable),
            (prefixes(SPOOFABLE_PREFIXES), Removal::Spoofable),
            (names(CONNECTION), Removal::Connection),
        ] {
            for name in list {
                for spelled in [name.clone(), name.to_uppercase()] {
                    assert_eq!(Removal::of(spelled.as_bytes()), Some(removal), "{spelled}");
                }
                assert!(http_syntax::is_plain_name(name.as_bytes()) && name == name.to_lowercase(), "{name}");
            }
        }
    }

    #[test]
    fn fields_of_ordinary_requests_are_not_searched_for_in_the_lists() {
        for name in ["host", "user-agent", "accept", "accept-encoding", "accept-language", "content-type", "cookie"] {
            assert!(!LISTED.may_contain(name.as_bytes()) && !may_have_prefix(name.as_bytes()), "{name}");
        }
    }
}
