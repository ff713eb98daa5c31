//! Identities: the peer of a connection, the principal of a request, their ids, and the headers that carry them.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::str::FromStr;

use http::header::{FORWARDED, VIA};
use http::{HeaderName, HeaderValue};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

mod person;
mod principal;

pub use person::{InvalidPerson, PersonId, Voucher};
pub use principal::{Principal, PrincipalHeaders};

/// The user a request acts as.
pub const X_USER_ID: HeaderName = HeaderName::from_static("x-user-id");
/// The organization the user belongs to.
pub const X_ORG_ID: HeaderName = HeaderName::from_static("x-org-id");
/// The public id of the key that was used; absent for a session.
pub const X_KEY_ID: HeaderName = HeaderName::from_static("x-key-id");
/// The user's permissions, comma-separated, sorted.
pub const X_PERMISSIONS: HeaderName = HeaderName::from_static("x-permissions");
/// Method of authentication: `api-key` or `session`.
pub const X_AUTH_METHOD: HeaderName = HeaderName::from_static("x-auth-method");
/// The request's id, a UUIDv7, equal to the audit record's.
pub const X_REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
/// The addresses the request came through (de facto).
pub const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
/// `http` or `https`, as the client spoke (de facto).
pub const X_FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");
/// The `Host` the client asked for (de facto).
pub const X_FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");

/// Fields that say who the caller is, and which request it is.
pub static IDENTITY_FIELDS: [HeaderName; 6] =
    [X_REQUEST_ID, X_AUTH_METHOD, X_USER_ID, X_ORG_ID, X_KEY_ID, X_PERMISSIONS];
/// Fields that say where a request came from.
pub static ORIGIN_FIELDS: [HeaderName; 5] = [X_FORWARDED_FOR, X_FORWARDED_PROTO, FORWARDED, X_FORWARDED_HOST, VIA];

/// The other end of a downstream connection.
#[derive(Clone, Debug)]
pub struct Peer {
    /// Its address and port.
    pub address: SocketAddr,
    /// Version of TLS; none when the connection is not encrypted.
    pub tls: Option<TlsVersion>,
    /// Its certificate (DER), verified; none where no certificate is asked for, or none was sent.
    pub certificate: Option<Box<[u8]>>,
}

/// Version of TLS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TlsVersion {
    /// TLS 1.2 (RFC 5246).
    V1_2,
    /// TLS 1.3 (RFC 8446).
    V1_3,
}

impl TlsVersion {
    /// Number of the version.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::V1_2 => "1.2",
            Self::V1_3 => "1.3",
        }
    }
}

/// Groups addresses that belong to one client: an IPv4 address, or the /64 network of an IPv6 address, within which a
/// client can use any number of addresses.
pub fn client_prefix(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() & u128::MAX << 64)),
        address => address,
    }
}

macro_rules! id {
    ($(#[$doc:meta])* $type:ident, $prefix:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $type(Uuid);

        impl $type {
            /// Prefix of the text form.
            pub const PREFIX: &str = $prefix;

            /// Generates an id: a UUIDv7 (RFC 9562), so that ids sort by their time of creation.
            pub fn generate() -> Self {
                Self(Uuid::now_v7())
            }

            /// Makes an id from its 16 bytes.
            pub fn from_bytes(bytes: [u8; 16]) -> Self {
                Self(Uuid::from_bytes(bytes))
            }

            /// Its 16 bytes.
            pub fn as_bytes(&self) -> &[u8; 16] {
                self.0.as_bytes()
            }
        }

        impl From<[u8; 16]> for $type {
            fn from(bytes: [u8; 16]) -> Self {
                Self(Uuid::from_bytes(bytes))
            }
        }

        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!($prefix, "{}"), self.0.simple())
            }
        }

        impl fmt::Debug for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(self, f)
            }
        }

        impl FromStr for $type {
            type Err = InvalidId;

            fn from_str(text: &str) -> Result<Self, InvalidId> {
                let digits = text.strip_prefix($prefix).filter(|digits| digits.len() == 32);
                digits.and_then(|d| Uuid::try_parse(d).ok()).map(Self).ok_or(InvalidId { prefix: $prefix })
            }
        }

        impl Serialize for $type {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> Deserialize<'de> for $type {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
                text.parse().map_err(serde::de::Error::custom)
            }
        }
    };
}

id!(
    /// An organization: `org_` and 32 hexadecimal digits.
    OrgId,
    "org_"
);
id!(
    /// A user within one organization: `usr_` and 32 hexadecimal digits.
    UserId,
    "usr_"
);
id!(
    /// A web session, by its public id: `ses_` and 32 hexadecimal digits.
    SessionId,
    "ses_"
);

/// Error: the text is not an id of this kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected an id of the form {prefix} followed by 32 hexadecimal digits")]
pub struct InvalidId {
    prefix: &'static str,
}

/// Stands in place of the HTTP method in audit records of changes made by management. Admission refuses requests with a
/// session that send it as their method, so that no such request is recorded as a change.
pub const MANAGEMENT_METHOD: &str = "ADMIN";

/// Method by which a principal was authenticated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AuthMethod {
    /// A bearer key.
    ApiKey,
    /// The web session of an identity provider.
    Session,
    /// The admin socket: any process that may open it.
    AdminSocket,
    /// A management token of a program.
    Token,
}

impl AuthMethod {
    /// All methods.
    pub const ALL: [Self; 4] = [Self::ApiKey, Self::Session, Self::AdminSocket, Self::Token];

    /// The value in headers and audit records.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::ApiKey => "api-key",
            Self::Session => "session",
            Self::AdminSocket => "admin-socket",
            Self::Token => "token",
        }
    }

    /// The value of `X-Auth-Method`.
    pub fn header(self) -> HeaderValue {
        const API_KEY: HeaderValue = HeaderValue::from_static(AuthMethod::ApiKey.as_str());
        match self {
            // Nearly all requests have a key; its value is checked by the compiler.
            Self::ApiKey => API_KEY,
            Self::Session | Self::AdminSocket | Self::Token => HeaderValue::from_static(self.as_str()),
        }
    }
}

/// A permission of a user, such as `queries:read`: 1 to 64 characters of `a-z 0-9 : . _ -`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Permission(String);

/// Error: the text is not a permission.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a permission is 1 to 64 characters of a-z, 0-9 and : . _ -")]
pub struct InvalidPermission;

impl Permission {
    /// The permission as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for Permission {
    type Error = InvalidPermission;

    fn try_from(text: String) -> Result<Self, InvalidPermission> {
        let allowed = |c: u8| c.is_ascii_lowercase() || c.is_ascii_digit() || b":._-".contains(&c);
        let valid = !text.is_empty() && text.len() <= 64 && text.bytes().all(allowed);
        valid.then_some(Self(text)).ok_or(InvalidPermission)
    }
}

impl FromStr for Permission {
    type Err = InvalidPermission;

    fn from_str(text: &str) -> Result<Self, InvalidPermission> {
        Self::try_from(text.to_owned())
    }
}

impl From<Permission> for String {
    fn from(permission: Permission) -> Self {
        permission.0
    }
}

impl fmt::Display for Permission {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_parsed_and_kinds_are_told_apart() {
        let org = OrgId::generate();
        assert_eq!(org.to_string().parse(), Ok(org));
        assert!(org.to_string().parse::<UserId>().is_err());
        assert!("org_".parse::<OrgId>().is_err());
        assert!(format!("{org}0").parse::<OrgId>().is_err());
    }

    #[test]
    fn method_of_authentication_has_one_text_in_headers_and_in_json() {
        let texts = AuthMethod::ALL.map(AuthMethod::as_str);
        assert_eq!(texts, ["api-key", "session", "admin-socket", "token"]);
        for method in AuthMethod::ALL {
            assert_eq!(serde_json::to_value(method).unwrap(), method.as_str());
            assert_eq!(method.header(), method.as_str());
        }
    }

    #[test]
    fn permissions_have_a_restricted_alphabet() {
        assert!("queries:read".parse::<Permission>().is_ok());
        for bad in ["", "a b", "a,b", "A", "a\n", &"x".repeat(65)] {
            assert!(bad.parse::<Permission>().is_err(), "{bad:?}");
        }
    }
}
