//! Names of the fields, beside `Authorization`, in which clients may send an API key (`credentials.headers`).
//!
//! A reader of a head compares each name with them as it reads it, and notes [`FieldSet::CREDENTIAL`]. All steps that
//! follow look into the head only then.

use std::str::FromStr;
use std::sync::Arc;

use http::{HeaderMap, HeaderName};

use super::removal::{Removal, begins, contains};
use super::{FieldSet, OTHER_HOP_BY_HOP};
use crate::http_syntax;

/// Fields that can be listed at most: each is compared with each name of a head.
pub const MAX_CREDENTIAL_FIELDS: usize = 4;

/// Fields that say something else, which the gateway, its records or every HTTP server reads.
const MEANINGFUL: &[&str] = &[
    "accept",
    "accept-encoding",
    "accept-language",
    "baggage",
    "cache-control",
    "content-encoding",
    "content-type",
    "date",
    "from",
    "origin",
    "pragma",
    "range",
    "referer",
    "traceparent",
    "tracestate",
    "user-agent",
];
/// Prefixes of such names: browsers set them.
const MEANINGFUL_PREFIXES: &[&str] = &["sec-", "access-control-", "content-", "if-"];

/// Fields that carry an API key, in the order of the configuration. Clones share them.
///
/// - A name is one of them also in every spelling that some server reads as it: letters of either case are the same,
///   and so are all characters other than letters and digits (`X_API_Key` is `X-API-Key`).
/// - None by default, and then nothing is compared.
/// - Whether `Authorization: Basic` may carry a key, too, or the offer of a WebSocket, is kept with them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CredentialFields(Option<Arc<Listed>>);

#[derive(Debug, PartialEq, Eq)]
struct Listed {
    /// Lengths of the names, a bit each, modulo 64.
    lengths: u64,
    fields: Box<[CredentialField]>,
    has_basic: bool,
    websocket_protocol: Option<Box<str>>,
}

/// Field that may carry an API key. Its name is plain, and nothing else is said in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CredentialField {
    name: HeaderName,
    /// The name as the configuration has it.
    text: Box<str>,
}

/// Reason why a field cannot carry an API key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidCredentialField {
    /// The name has characters that no field name has, or that some servers fold into another name.
    #[error("is not the name of a field; give letters, digits and `-`, such as X-API-Key")]
    Name,
    /// Keys are read from `Authorization` anyway.
    #[error("is read anyway, as `Authorization: Bearer`; remove it")]
    Authorization,
    /// The field is for one connection only.
    #[error("is for one connection only; choose another field")]
    HopByHop,
    /// Only the gateway sets the field, or it names a caller to the upstream.
    #[error("is set by the gateway, or names the caller to the upstream; choose another field")]
    Reserved,
    /// The field says something else.
    #[error("has another meaning in HTTP; choose another field")]
    OtherMeaning,
}

impl CredentialFields {
    /// No field but `Authorization`.
    pub const NONE: Self = Self(None);

    /// These fields.
    pub fn new(fields: Vec<CredentialField>) -> Self {
        Self::of(fields, false, None)
    }

    /// These fields, `Authorization: Basic` (RFC 7617) if `has_basic`, and the offer of a WebSocket that has this
    /// subprotocol.
    pub fn of(fields: Vec<CredentialField>, has_basic: bool, websocket_protocol: Option<Box<str>>) -> Self {
        if fields.is_empty() && !has_basic && websocket_protocol.is_none() {
            return Self::NONE;
        }
        let lengths = fields.iter().fold(0, |lengths, field| lengths | length_bit(field.name.as_str().len()));
        Self(Some(Arc::new(Listed { lengths, fields: fields.into(), has_basic, websocket_protocol })))
    }

    /// Returns whether no field is listed.
    pub fn is_empty(&self) -> bool {
        self.iter().len() == 0
    }

    /// Returns whether `Authorization: Basic` may carry a key.
    pub fn has_basic(&self) -> bool {
        self.0.as_ref().is_some_and(|listed| listed.has_basic)
    }

    /// Subprotocol by which the offer of a WebSocket says that it has a key; none where no offer may.
    pub fn websocket_protocol(&self) -> Option<&str> {
        self.0.as_ref()?.websocket_protocol.as_deref()
    }

    /// The fields, in the order of the configuration.
    pub fn iter(&self) -> std::slice::Iter<'_, CredentialField> {
        self.0.as_ref().map_or(&[][..], |listed| &listed.fields).iter()
    }

    /// Returns whether a name of a head, in any spelling, is one of the fields.
    // Inlined where names are scanned: without fields it is one comparison.
    #[inline]
    pub fn contains(&self, name: &[u8]) -> bool {
        self.0.as_ref().is_some_and(|listed| listed.contains(name))
    }

    /// Set of one field with this name: [`FieldSet::CREDENTIAL`] or nothing.
    #[inline]
    pub(super) fn member(&self, name: &[u8]) -> FieldSet {
        if self.contains(name) { FieldSet::CREDENTIAL } else { FieldSet::NONE }
    }

    /// Removes the fields from a head. Other spellings of their names are not plain, and never reach an upstream.
    pub fn remove_from(&self, headers: &mut HeaderMap) {
        self.iter().for_each(|field| drop(headers.remove(&field.name)));
    }
}

impl Listed {
    fn contains(&self, name: &[u8]) -> bool {
        self.lengths & length_bit(name.len()) != 0
            && self.fields.iter().any(|field| is_spelling_of(field.name.as_str().as_bytes(), name))
    }
}

impl CredentialField {
    /// The name as the configuration has it.
    pub fn text(&self) -> &str {
        &self.text
    }
}

impl FromStr for CredentialField {
    type Err = InvalidCredentialField;

    fn from_str(text: &str) -> Result<Self, InvalidCredentialField> {
        let name = HeaderName::try_from(text).map_err(|_| InvalidCredentialField::Name)?;
        let bytes = name.as_str().as_bytes();
        if !http_syntax::is_plain_name(bytes) {
            return Err(InvalidCredentialField::Name);
        }
        let is_meaningful =
            contains(MEANINGFUL, bytes) || MEANINGFUL_PREFIXES.iter().any(|prefix| begins(bytes, prefix));
        match FieldSet::of_plain_name(bytes) {
            FieldSet::NONE if is_meaningful => Err(InvalidCredentialField::OtherMeaning),
            FieldSet::NONE => Ok(Self { text: text.into(), name }),
            FieldSet::AUTHORIZATION => Err(InvalidCredentialField::Authorization),
            member if OTHER_HOP_BY_HOP.with(FieldSet::HOP_BY_HOP).contains(member) => {
                Err(InvalidCredentialField::HopByHop)
            }
            FieldSet::UNTRUSTED => Err(match Removal::of(bytes) {
                Some(Removal::Reserved) => InvalidCredentialField::Reserved,
                Some(Removal::Connection) => InvalidCredentialField::HopByHop,
                _ => InvalidCredentialField::OtherMeaning,
            }),
            _ => Err(InvalidCredentialField::OtherMeaning),
        }
    }
}

/// Bit of a length.
const fn length_bit(length: usize) -> u64 {
    1 << (length & 63)
}

/// Returns whether some server reads `name` as `plain`, a plain name in lower case.
fn is_spelling_of(plain: &[u8], name: &[u8]) -> bool {
    let folded = |byte: &u8| if byte.is_ascii_alphanumeric() { byte.to_ascii_lowercase() } else { b'-' };
    plain.len() == name.len() && plain.iter().zip(name).all(|(listed, byte)| *listed == folded(byte))
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn fields(names: &[&str]) -> CredentialFields {
        CredentialFields::new(names.iter().map(|name| name.parse().unwrap()).collect())
    }

    #[test]
    fn listed_field_is_found_in_every_spelling_that_a_server_reads_as_it() {
        let fields = fields(&["X-API-Key", "apikey"]);
        for name in ["x-api-key", "X-API-KEY", "X_API_Key", "x.api.key", "X-API_Key", "ApiKey"] {
            assert!(fields.contains(name.as_bytes()), "{name}");
            assert_eq!(fields.member(name.as_bytes()), FieldSet::CREDENTIAL, "{name}");
        }
        for name in ["", "x-api-keys", "xx-api-key", "x-apikey", "xapikey", "api-key", "x-api-kez", "authorization"] {
            assert!(!fields.contains(name.as_bytes()), "{name}");
        }
        assert!(!CredentialFields::NONE.contains(b"") && !CredentialFields::NONE.contains(b"x-api-key"));
        assert_eq!(CredentialFields::new(Vec::new()), CredentialFields::NONE);
    }

    #[test]
    fn listed_field_is_removed_with_all_its_values() {
        let mut headers = HeaderMap::new();
        for (name, value) in [("x-api-key", "a"), ("x-api-key", ""), ("apikey", "b"), ("x-own", "c")] {
            headers.append(HeaderName::from_static(name), HeaderValue::from_static(value));
        }
        fields(&["X-API-Key", "apikey"]).remove_from(&mut headers);
        assert_eq!(headers.keys().map(HeaderName::as_str).collect::<Vec<_>>(), ["x-own"]);
    }

    #[test]
    fn field_that_says_something_else_carries_no_key() {
        use InvalidCredentialField::{Authorization, HopByHop, Name, OtherMeaning, Reserved};
        let parse = |name: &str| name.parse::<CredentialField>().map(|field| field.text().to_owned());
        for name in ["X-API-Key", "apikey", "Api-Key", "Ocp-Apim-Subscription-Key", "X-Auth-Token"] {
            assert_eq!(parse(name), Ok(name.to_owned()));
        }
        for (error, names) in [
            (Name, &["", "X_API_Key", "x api", "X.Key", "k\u{e4}y", "key:"][..]),
            (Authorization, &["Authorization", "AUTHORIZATION"]),
            (HopByHop, &["Connection", "Keep-Alive", "TE", "Trailer", "Transfer-Encoding", "Upgrade", "Expect"]),
            (HopByHop, &["Proxy-Authorization", "Proxy-Connection", "HTTP2-Settings"]),
            (Reserved, &["X-User-Id", "x-org-id", "X-Key-Id", "X-Request-Id", "Via", "Forwarded"]),
            (Reserved, &["X-Forwarded-For", "X-Forwarded-Anything", "Remote-User", "X-Auth-Request-User"]),
            (OtherMeaning, &["Cookie", "Host", "Content-Length", "Set-Cookie", "User-Agent", "Origin"]),
            (OtherMeaning, &["X-Real-IP", "X-Original-URL", "traceparent", "Sec-Fetch-Site", "If-Match"]),
        ] {
            names.iter().for_each(|name| assert_eq!(parse(name), Err(error), "{name}"));
        }
    }
}
