//! Names of header fields that the gateway acts on, found in one reading of a head.
//!
//! The reader of the names, which is the strict scanner on HTTP/1 and [`FieldSet::of_request`] on HTTP/2, notes in a
//! [`FieldSet`] which of them are there. All steps that follow ask the set, and look into the head only for fields that
//! it has: the name of an ordinary field is read once, and the field goes through.

mod removal;
mod untrusted;
mod credentials;

use http::HeaderMap;
use http::header::{HOST, HeaderName};

use crate::http_syntax;
use removal::Filter;

pub use credentials::{CredentialField, CredentialFields, InvalidCredentialField, MAX_CREDENTIAL_FIELDS};
pub use removal::{RESERVED, Removal, is_reserved};

/// Set of the fields of a head that the gateway acts on.
///
/// - A field that is not in the set is not in the head.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FieldSet(u16);

/// Names that have a member of their own, the usual ones first.
const NAMED: &[(&str, FieldSet)] = &[
    ("host", FieldSet::HOST),
    ("authorization", FieldSet::AUTHORIZATION),
    ("content-length", FieldSet::CONTENT_LENGTH),
    ("cookie", FieldSet::COOKIE),
    ("set-cookie", FieldSet::SET_COOKIE),
    ("connection", FieldSet::CONNECTION),
    ("transfer-encoding", FieldSet::TRANSFER_ENCODING),
    ("expect", FieldSet::EXPECT),
    ("keep-alive", FieldSet::HOP_BY_HOP),
    ("proxy-connection", FieldSet::HOP_BY_HOP),
    ("proxy-authenticate", FieldSet::HOP_BY_HOP),
    ("proxy-authorization", FieldSet::HOP_BY_HOP),
    ("te", FieldSet::HOP_BY_HOP),
    ("trailer", FieldSet::HOP_BY_HOP),
    ("upgrade", FieldSet::HOP_BY_HOP),
    ("clear-site-data", FieldSet::ORIGIN_WIDE),
    ("service-worker-allowed", FieldSet::ORIGIN_WIDE),
];
/// Hop-by-hop fields with a member of their own.
const OTHER_HOP_BY_HOP: FieldSet = FieldSet::CONNECTION.with(FieldSet::TRANSFER_ENCODING).with(FieldSet::EXPECT);
/// Filter of [`NAMED`].
const FILTER: Filter = Filter::new(&[&names()]);

impl FieldSet {
    /// No field that the gateway acts on.
    pub const NONE: Self = Self(0);
    /// `Host`.
    pub const HOST: Self = Self(1);
    /// More than one `Host`.
    pub const SECOND_HOST: Self = Self(1 << 1);
    /// `Authorization`.
    pub const AUTHORIZATION: Self = Self(1 << 2);
    /// `Content-Length`.
    pub const CONTENT_LENGTH: Self = Self(1 << 3);
    /// `Transfer-Encoding`.
    pub const TRANSFER_ENCODING: Self = Self(1 << 4);
    /// `Connection`.
    pub const CONNECTION: Self = Self(1 << 5);
    /// `Expect`.
    pub const EXPECT: Self = Self(1 << 6);
    /// A hop-by-hop field other than those above (RFC 9110, section 7.6.1).
    pub const HOP_BY_HOP: Self = Self(1 << 7);
    /// `Cookie`.
    pub const COOKIE: Self = Self(1 << 8);
    /// `Set-Cookie`.
    pub const SET_COOKIE: Self = Self(1 << 9);
    /// `Clear-Site-Data` or `Service-Worker-Allowed`, which act on a whole origin in browsers.
    pub const ORIGIN_WIDE: Self = Self(1 << 10);
    /// A field that has a [`Removal`], other than `Authorization`.
    pub const UNTRUSTED: Self = Self(1 << 11);
    /// A name with other characters than letters, digits and `-`.
    pub const ODD_NAME: Self = Self(1 << 12);
    /// One of the [`CredentialFields`], in any spelling. Only in requests.
    pub const CREDENTIAL: Self = Self(1 << 13);

    /// Set of the fields of a parsed head.
    pub fn of_map(headers: &HeaderMap) -> Self {
        Self::of_request(headers, &CredentialFields::NONE)
    }

    /// The same of a request, in which these fields may carry a key.
    pub fn of_request(headers: &HeaderMap, credentials: &CredentialFields) -> Self {
        let one = |name: &HeaderName| {
            let name = name.as_str().as_bytes();
            Self::of_scanned_name(name, http_syntax::is_plain_name(name), credentials)
        };
        let set = headers.keys().map(one).fold(Self::NONE, Self::with);
        let has_second_host = set.contains(Self::HOST) && headers.get_all(HOST).iter().nth(1).is_some();
        if has_second_host { set.with(Self::SECOND_HOST) } else { set }
    }

    /// Set of one field with this name, in any case.
    pub fn of_name(name: &[u8]) -> Self {
        Self::of_scanned_name(name, http_syntax::is_plain_name(name), &CredentialFields::NONE)
    }

    /// The same of a request, in which `credentials` may carry a key. `is_plain` says whether the name is plain.
    #[inline]
    pub fn of_scanned_name(name: &[u8], is_plain: bool, credentials: &CredentialFields) -> Self {
        let field = if is_plain { Self::of_plain_name(name) } else { Self::ODD_NAME };
        field.with(credentials.member(name))
    }

    /// Set of one field with this plain name, in any case.
    pub fn of_plain_name(name: &[u8]) -> Self {
        match Self::of_response_name(name) {
            Self::NONE if Removal::of(name).is_some() => Self::UNTRUSTED,
            found => found,
        }
    }

    /// The same for a field of a response: the upstream may set fields that a client must not set.
    pub fn of_response_name(name: &[u8]) -> Self {
        if !FILTER.may_contain(name) {
            return Self::NONE;
        }
        let named = NAMED.iter().find(|(named, _)| named.as_bytes().eq_ignore_ascii_case(name));
        named.map_or(Self::NONE, |(_, member)| *member)
    }

    /// Adds one field: a second `Host` is noted as such.
    #[must_use]
    pub fn with_field(self, field: Self) -> Self {
        let is_second_host = field == Self::HOST && self.contains(Self::HOST);
        self.with(if is_second_host { Self::SECOND_HOST } else { field })
    }

    /// Union of two sets.
    #[must_use]
    pub const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Returns whether the set has any member of the other one.
    pub const fn contains(self, any: Self) -> bool {
        self.0 & any.0 != 0
    }
}

const fn names() -> [&'static str; NAMED.len()] {
    let mut names = [""; NAMED.len()];
    let mut i = 0;
    while i < NAMED.len() {
        names[i] = NAMED[i].0;
        i += 1;
    }
    names
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;
    use proptest::prelude::*;

    use super::*;

    fn of_map(names: &[&str]) -> FieldSet {
        let mut headers = HeaderMap::new();
        for name in names {
            headers.append(HeaderName::from_bytes(name.as_bytes()).unwrap(), HeaderValue::from_static(""));
        }
        FieldSet::of_map(&headers)
    }

    #[test]
    fn every_named_field_is_found_in_any_case() {
        for (name, member) in NAMED {
            assert_eq!(FieldSet::of_name(name.as_bytes()), *member, "{name}");
            assert_eq!(FieldSet::of_name(name.to_uppercase().as_bytes()), *member, "{name}");
            assert_eq!(FieldSet::of_response_name(name.as_bytes()), *member, "{name}");
        }
        assert_eq!(FieldSet::of_response_name(b"X-User-Id"), FieldSet::NONE);
        for (name, member) in [("X-User-Id", FieldSet::UNTRUSTED), ("X_User_Id", FieldSet::ODD_NAME)] {
            assert_eq!(FieldSet::of_name(name.as_bytes()), member, "{name}");
        }
        for name in ["accept", "user-agent", "x-trace", "hosts", "h", ""] {
            assert_eq!(FieldSet::of_name(name.as_bytes()), FieldSet::NONE, "{name}");
        }
    }

    #[test]
    fn second_host_is_noted() {
        assert_eq!(of_map(&["host", "accept"]), FieldSet::HOST);
        assert_eq!(of_map(&["host", "Host"]), FieldSet::HOST.with(FieldSet::SECOND_HOST));
        assert_eq!(of_map(&["cookie", "cookie"]), FieldSet::COOKIE);
    }

    proptest! {
        #[test]
        fn set_of_a_map_is_that_of_its_names(
            picked in proptest::collection::vec(prop_oneof![(0..NAMED.len()).prop_map(|i| NAMED[i].0.to_owned()),
                "[a-zA-Z_.-]{1,9}"], 0..12),
        ) {
            let names: Vec<&str> = picked.iter().map(String::as_str).collect();
            let each = names.iter().map(|name| FieldSet::of_name(name.as_bytes()));
            prop_assert_eq!(of_map(&names), each.fold(FieldSet::NONE, FieldSet::with_field));
        }
    }
}
