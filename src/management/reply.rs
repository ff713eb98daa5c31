//! The replies, as they travel over the admin socket and as `--json` prints them. Times are RFC 3339, UTC.

use std::collections::BTreeMap;
use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use super::Activity;
use crate::audit::Record;
use crate::clock::Micros;
use crate::identity::{OrgId, Permission, SessionId, UserId};
use crate::key::{KeyId, OrgTag, PlainKey};
use crate::quota::{self, Quota};
use crate::secret::Secret;
use crate::settings::WithUnit;
use crate::state;

/// What came of an operation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "reply", rename_all = "snake_case")]
#[allow(missing_docs, reason = "each field is what its type says")]
pub enum Reply {
    /// An organization, as it is now.
    Org { org: Org },
    /// Organizations, in the order of their creation.
    Orgs { orgs: Vec<Org> },
    /// A user, as it is now.
    User { user: User },
    /// Users, in the order of their creation.
    Users { users: Vec<User> },
    /// A key, as it is now.
    Key { key: Key },
    /// Keys, in the order of their creation.
    Keys { keys: Vec<Key> },
    /// A key with a new secret: the only time that it is shown.
    NewKey { api_key: ApiKey, key: Key },
    /// What a key was used for, newest first, as one gateway has recorded it; with `next`, there may be more.
    Uses { uses: Vec<Record>, next: Option<String>, gateway: String },
    /// What happened with each key that was asked for in the last day, as one gateway has recorded it.
    Activity { keys: BTreeMap<KeyId, Activity>, gateway: String },
    /// A link that signs somebody in, once.
    Link { link: Link },
    /// Web sessions, oldest first.
    Sessions { sessions: Vec<Session> },
    /// Where a key stands.
    Explanation { explanation: Box<Explanation> },
}

/// A key in the clear on its way to its owner. It serializes as the key itself; `Debug` does not show it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApiKey(Secret);

/// An organization.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs, reason = "as in state::Org")]
pub struct Org {
    pub id: OrgId,
    pub name: String,
    pub tag: OrgTag,
    pub suspended: bool,
    /// Its own limit of requests in flight; none: the configured one.
    pub concurrent: Option<u32>,
    /// The limit of requests in flight that holds, its own or the configured one.
    pub concurrent_in_force: u32,
    pub created: String,
}

/// A user.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs, reason = "as in state::User")]
pub struct User {
    pub id: UserId,
    pub email: String,
    pub org: OrgId,
    pub permissions: Vec<Permission>,
    pub created: String,
    pub removed: Option<String>,
}

/// A key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs, reason = "as in state::Key")]
pub struct Key {
    pub id: KeyId,
    pub name: String,
    pub org: OrgId,
    pub user: UserId,
    /// The user's email address.
    pub email: String,
    pub status: KeyStatus,
    /// The limits in force.
    pub limits: KeyLimits,
    pub imported: bool,
    pub uses: u64,
    pub last_used: Option<String>,
    pub created: String,
    pub rotated: Option<String>,
    pub previous_until: Option<String>,
    pub revoked: Option<String>,
}

/// Whether requests with a key would be authenticated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum KeyStatus {
    /// Yes.
    Active,
    /// No: it was revoked.
    Revoked,
    /// No: its user was removed.
    UserRemoved,
    /// No: its organization is suspended.
    OrgSuspended,
}

/// The quota in force for a key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeyLimits {
    /// Tokens that flow in during one `per`.
    pub requests: u32,
    /// The time in which they flow in, such as `1h`.
    pub per: String,
    /// Tokens the bucket holds when full.
    pub burst: u32,
    /// Whether it is the key's own, and not the configured one.
    pub own: bool,
}

/// Why a key is, or would be, refused.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Explanation {
    /// What would happen to a request now, in one sentence.
    pub verdict: String,
    /// The key.
    pub key: Key,
    /// Its user.
    pub user: User,
    /// Its organization.
    pub org: Org,
    /// Where they stand.
    pub standing: LimitStatus,
}

/// A link that signs a user in, once. `Debug` does not show it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Link {
    /// Where to go.
    #[serde(with = "exposed")]
    pub url: Secret,
    /// The user's email address.
    pub email: String,
    /// Until when.
    pub expires: String,
}

/// A web session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs, reason = "as in state::Session")]
pub struct Session {
    pub id: SessionId,
    pub email: String,
    /// The organization that the person acts in.
    pub org: OrgId,
    /// All organizations that they may act in.
    pub orgs: Vec<OrgId>,
    pub provider: Option<String>,
    pub created: String,
    /// When it was last used, to about a minute.
    pub seen: String,
    /// When it ends, whatever happens.
    pub expires: String,
    pub ip: Option<IpAddr>,
    pub user_agent: Option<String>,
}

/// The bucket of a key and the slots of its organization.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LimitStatus {
    /// Whole tokens in the bucket.
    pub remaining: u32,
    /// Tokens the bucket holds when full.
    pub burst: u32,
    /// When there is a whole token; none when there is one.
    pub next_token: Option<String>,
    /// When the bucket is full; none when it is.
    pub full: Option<String>,
    /// Requests the organization has in flight.
    pub in_flight: u32,
    /// Requests it may have in flight.
    pub concurrent: u32,
}

impl Reply {
    /// As JSON, without the tag that tells the socket's client which it is.
    ///
    /// # Errors
    /// None that can happen: all of it is JSON.
    pub fn untagged(&self) -> serde_json::Result<serde_json::Value> {
        let mut value = serde_json::to_value(self)?;
        value.as_object_mut().and_then(|object| object.remove("reply"));
        Ok(value)
    }
}

impl ApiKey {
    /// The key itself, to be shown once.
    pub fn expose(&self) -> &str {
        self.0.expose()
    }
}

impl From<&PlainKey> for ApiKey {
    fn from(key: &PlainKey) -> Self {
        Self(key.expose().clone())
    }
}

impl Serialize for ApiKey {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.expose())
    }
}

impl<'de> Deserialize<'de> for ApiKey {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer).map(|text| Self(Secret::new(text)))
    }
}

impl Link {
    pub(super) fn new(url: Secret, email: &str, expires: Micros) -> Self {
        Self { url, email: email.to_owned(), expires: expires.to_string() }
    }
}

/// A secret on its way to whoever it is for.
mod exposed {
    use serde::{Deserialize as _, Deserializer, Serializer};

    use crate::secret::Secret;

    pub(super) fn serialize<S: Serializer>(secret: &Secret, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(secret.expose())
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Secret, D::Error> {
        String::deserialize(deserializer).map(Secret::new)
    }
}

impl From<state::Session> for Session {
    fn from(session: state::Session) -> Self {
        let orgs = session.memberships.iter().map(|membership| membership.org).collect();
        let state::Session { id, email, chosen, provider, created, seen, expires, ip, user_agent, .. } = session;
        let [created, seen, expires] = [created, seen, expires].map(|time| time.to_string());
        Self { id, email, org: chosen, orgs, provider, created, seen, expires, ip, user_agent }
    }
}

impl Org {
    /// An organization, with the configured limit of requests in flight.
    pub(super) fn of(org: state::Org, configured: u32) -> Self {
        let state::Org { id, tag, name, created, suspended, concurrent } = org;
        let concurrent_in_force = concurrent.unwrap_or(configured);
        Self { id, name, tag, suspended, concurrent, concurrent_in_force, created: created.to_string() }
    }
}

impl From<state::User> for User {
    fn from(user: state::User) -> Self {
        let state::User { id, org, email, permissions, created, removed } = user;
        Self { id, email, org, permissions, created: created.to_string(), removed: shown(removed) }
    }
}

impl Key {
    /// A key with its user's address, its status and the limits in force.
    pub(super) fn of(key: state::Key, email: String, status: KeyStatus, quota: Quota) -> Self {
        Self {
            id: key.id,
            name: key.name,
            org: key.org,
            user: key.user,
            email,
            status,
            limits: KeyLimits::of(quota, key.quota.is_some()),
            imported: key.imported,
            uses: key.uses,
            last_used: shown(key.last_used),
            created: key.created.to_string(),
            rotated: shown(key.rotated),
            previous_until: shown(key.previous_until),
            revoked: shown(key.revoked),
        }
    }
}

impl KeyLimits {
    fn of(quota: Quota, own: bool) -> Self {
        Self { requests: quota.requests, per: WithUnit::Duration(quota.per).to_string(), burst: quota.burst, own }
    }
}

impl LimitStatus {
    pub(super) fn of(standing: &quota::RateLimitStatus, now: Micros) -> Self {
        let later = |micros: u64| (micros > 0).then(|| Micros(now.0.saturating_add(micros)).to_string());
        Self {
            remaining: standing.remaining,
            burst: standing.quota.burst,
            next_token: later(standing.token_in_us),
            full: later(standing.full_in_us),
            in_flight: standing.in_flight,
            concurrent: standing.concurrent,
        }
    }
}

fn shown(time: Option<Micros>) -> Option<String> {
    time.map(|time| time.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::OrgTag;

    #[test]
    fn a_plain_key_is_serialized_and_never_debugged() {
        let id = KeyId::generate(OrgTag::generate().unwrap()).unwrap();
        let plain = PlainKey::generate(id).unwrap();
        let api_key = ApiKey::from(&plain);
        assert_eq!(format!("{api_key:?}"), "ApiKey(Secret(…))");
        let json = serde_json::to_string(&api_key).unwrap();
        assert_eq!(json, format!("{:?}", plain.expose().expose()));
        assert_eq!(serde_json::from_str::<ApiKey>(&json).unwrap(), api_key);
    }
}
