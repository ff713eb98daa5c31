//! Management tokens: the credential of a program that manages organizations, users and keys over the network.
//!
//! ```text
//! kgm_   TTTTTTTTTT _ SSSSSSSSSSSSSSSSSSSSSSSSSSSSSSSSSSSSSSSSSSS CCCCCC
//! prefix token id     secret, 43 base62 characters (256 bits)     CRC-32, base62
//! ```
//!
//! - Like a key, a token is known by the SHA-256 of the whole text only, and is shown once. Unlike a key it is looked
//!   up by its id, never by its digest: a token is no API key, and an API key is no token.
//! - A token always expires, and does no more than its [`TokenScope`]s say, in one organization or in all.

use std::collections::BTreeSet;
use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use crate::clock::{self, Micros};
use crate::identity::{OrgId, UserId};
use crate::key::policy::Network;
use crate::session::TokenDigest;

mod plain;
mod scope;

pub use plain::{PlainToken, TokenId, parse};
pub use scope::{InvalidScope, TokenScope};

/// Prefix of every token.
pub const PREFIX: &str = "kgm_";
/// Characters of the name of a token at most.
pub const MAX_NAME: usize = 100;
/// Networks of a token at most.
pub const MAX_NETWORKS: usize = 32;
/// Days until a token expires when nothing else is asked for.
pub const DEFAULT_DAYS: u64 = 90;
/// Days until a token expires at most.
pub const MAX_DAYS: u64 = 366;
/// Bytes of a subject alternative name at most.
const MAX_SAN: usize = 255;
/// Microseconds of a day.
const DAY_US: u64 = 24 * 3600 * 1_000_000;

/// Record of a management token.
///
/// - It stands until it expires or is revoked; a revoked one stays listed until it would have expired.
/// - `scopes` is never empty; `networks` is sorted, each once.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ManagementToken {
    /// Its public id.
    pub id: TokenId,
    /// SHA-256 of the whole token.
    #[serde(with = "plain::hex")]
    pub digest: TokenDigest,
    /// Name that its creator gave it.
    pub name: String,
    /// The only organization that it manages; none for all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub org: Option<OrgId>,
    /// Administrator of the organization who created it, or the token that created it: it does no more than an
    /// administrator may, keys that it creates count as theirs, and it is refused while they are none. None of a token
    /// of the operator.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub admin: Option<UserId>,
    /// Operations that it may perform.
    pub scopes: BTreeSet<TokenScope>,
    /// Networks from which it is accepted, [`MAX_NETWORKS`] at most; empty for any.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub networks: Vec<Network>,
    /// Subject alternative name that the client's certificate must have; none where no certificate is asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_san: Option<String>,
    /// Time of its creation.
    #[serde(with = "clock::rfc3339")]
    pub created: Micros,
    /// Actor who created it, as records of changes name them.
    pub created_by: String,
    /// Time from which it is refused.
    #[serde(with = "clock::rfc3339")]
    pub expires: Micros,
    /// Time of its revocation.
    #[serde(default, with = "clock::rfc3339::option", skip_serializing_if = "Option::is_none")]
    pub revoked: Option<Micros>,
}

/// The last use of a management token: the last call that was authenticated with it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TokenUse {
    /// Time of the call.
    #[serde(with = "clock::rfc3339")]
    pub time: Micros,
    /// The client's address.
    pub ip: Option<IpAddr>,
    /// The client's user agent, capped and escaped.
    pub user_agent: Option<String>,
}

/// Reason why the settings of a token are not valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct InvalidTokenSettings(pub &'static str);

impl ManagementToken {
    /// Checks the settings with which it was created, except its name.
    ///
    /// # Errors
    /// [`InvalidTokenSettings`].
    pub fn validate(&self) -> Result<(), InvalidTokenSettings> {
        let last = Micros(self.created.0.saturating_add(MAX_DAYS * DAY_US));
        let is_name =
            |san: &String| !san.is_empty() && san.len() <= MAX_SAN && san.bytes().all(|byte| byte.is_ascii_graphic());
        let invalid = if self.scopes.is_empty() {
            "a token needs one scope at least"
        } else if self.expires <= self.created {
            "the token would have expired already"
        } else if self.expires > last {
            "a token expires after 366 days at most"
        } else if self.networks.len() > MAX_NETWORKS {
            "a token has 32 networks at most"
        } else if !self.networks.is_sorted_by(|one, next| one < next) {
            "the networks of a token are sorted, each once"
        } else if !self.client_san.iter().all(is_name) {
            "the name of a certificate has 1 to 255 visible ASCII characters"
        } else if self.org.is_some() && self.scopes.contains(&TokenScope::StateExport) {
            "the state is exported by tokens of all organizations only"
        } else {
            return Ok(());
        };
        Err(InvalidTokenSettings(invalid))
    }

    /// Returns whether it is neither revoked nor expired.
    pub fn is_live(&self, now: Micros) -> bool {
        self.revoked.is_none() && now < self.expires
    }

    /// Returns whether it is accepted from this address; an unknown address is in no network.
    pub fn allows_address(&self, client: Option<&IpAddr>) -> bool {
        self.networks.is_empty() || client.is_some_and(|ip| self.networks.iter().any(|network| network.contains(*ip)))
    }

    /// Returns whether it manages this organization.
    pub fn covers(&self, org: OrgId) -> bool {
        self.org.is_none_or(|own| own == org)
    }

    /// Returns whether it may do nothing that `other` may not: no token creates one that exceeds it.
    pub fn is_within(&self, other: &Self) -> bool {
        let is_covered = |network: &Network| network.is_in_one_of(&other.networks);
        let has_networks_within =
            other.networks.is_empty() || (!self.networks.is_empty() && self.networks.iter().all(is_covered));
        (other.org.is_none() || self.org == other.org)
            && (other.admin.is_none() || self.admin == other.admin)
            && self.scopes.is_subset(&other.scopes)
            && has_networks_within
            && (other.client_san.is_none() || self.client_san == other.client_san)
            && self.expires <= other.expires
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token() -> ManagementToken {
        let plain = PlainToken::generate().unwrap();
        ManagementToken {
            id: plain.id(),
            digest: plain.digest(),
            name: "pipeline".into(),
            org: None,
            admin: None,
            scopes: [TokenScope::KeysRead, TokenScope::KeysCreate].into(),
            networks: vec!["10.0.0.0/8".parse().unwrap()],
            client_san: None,
            created: Micros(1_000_000),
            created_by: "root".into(),
            expires: Micros(9_000_000),
            revoked: None,
        }
    }

    #[test]
    fn token_is_within_itself_and_exceeds_it_in_each_field() {
        let of = token();
        assert!(of.is_within(&of));
        let exceeds: [fn(&mut ManagementToken); 4] = [
            |token| token.scopes.extend([TokenScope::AuditRead]),
            |token| token.networks.clear(),
            |token| token.networks.push("192.0.2.0/24".parse().unwrap()),
            |token| token.expires = Micros(9_000_001),
        ];
        for (number, change) in exceeds.iter().enumerate() {
            let mut other = token();
            change(&mut other);
            assert!(!other.is_within(&of), "{number}");
        }
        let org = OrgId::generate();
        let of_org = ManagementToken { org: Some(org), ..token() };
        assert!(of_org.is_within(&of) && !of.is_within(&of_org));
        assert!(of_org.covers(org) && !of_org.covers(OrgId::generate()) && of.covers(org));
        let of_admin = ManagementToken { admin: Some(UserId::generate()), ..token() };
        assert!(of_admin.is_within(&of) && !of.is_within(&of_admin));
        let narrower = ManagementToken { networks: vec!["10.1.0.0/16".parse().unwrap()], ..token() };
        assert!(narrower.is_within(&of) && !of.is_within(&narrower));
        let with_certificate = ManagementToken { client_san: Some("ci.example".into()), ..token() };
        assert!(with_certificate.is_within(&of) && !of.is_within(&with_certificate));
    }

    #[test]
    fn token_is_live_until_it_expires_or_is_revoked() {
        let token = token();
        assert!(token.is_live(Micros(8_999_999)) && !token.is_live(Micros(9_000_000)));
        assert!(!ManagementToken { revoked: Some(Micros(1)), ..token }.is_live(Micros(2)));
    }

    #[test]
    fn token_of_networks_is_refused_elsewhere() {
        let token = token();
        assert!(token.allows_address(Some(&"10.9.8.7".parse().unwrap())));
        assert!(!token.allows_address(Some(&"11.0.0.1".parse().unwrap())) && !token.allows_address(None));
        assert!(ManagementToken { networks: Vec::new(), ..token }.allows_address(None));
    }

    #[test]
    fn record_is_read_as_it_was_written() {
        let token = token();
        let json = serde_json::to_string(&token).unwrap();
        assert!(json.contains(r#""scopes":["keys:read","keys:create"]"#), "{json}");
        assert_eq!(serde_json::from_str::<ManagementToken>(&json).unwrap(), token);
    }
}
