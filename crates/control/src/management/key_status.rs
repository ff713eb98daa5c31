//! The status of a key, and marks for the attention of its owner.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use domain::clock::Micros;

/// Time without use after which a key is marked.
const UNUSED: Duration = Duration::from_secs(90 * 24 * 3600);
/// Age of a secret after which its key is marked.
const OLD: Duration = Duration::from_secs(365 * 24 * 3600);

/// Time before its expiry in which a key is marked.
const EXPIRING: Duration = Duration::from_secs(7 * 24 * 3600);

/// A mark for the attention of the owner of a key that is not revoked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum KeyMark {
    /// It was not used for 90 days, or, never used, is that old: it may not be needed any more.
    #[serde(rename = "unused_90_days")]
    Unused,
    /// Its secret, counted from the last rotation, is older than a year: it should be rotated.
    #[serde(rename = "older_than_1_year")]
    Old,
    /// It expires within 7 days.
    #[serde(rename = "expires_within_7_days")]
    Expiring,
}

/// Authentication status of a key: active, or the first reason to refuse it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum KeyStatus {
    /// Requests are authenticated.
    Active,
    /// The key was revoked.
    Revoked,
    /// The key has expired.
    Expired,
    /// The key is disabled.
    Disabled,
    /// The key's user was removed.
    UserRemoved,
    /// The key's user is suspended.
    UserSuspended,
    /// The key's organization is suspended.
    OrgSuspended,
}

impl KeyMark {
    /// The marks of a key; none of one that is revoked.
    pub(super) fn of(key: &state::Key, now: Micros) -> Vec<Self> {
        let is_unused = key.last_used.unwrap_or(key.created).after(UNUSED) <= now;
        let is_old = key.rotated.unwrap_or(key.created).after(OLD) <= now;
        let expires = key.policy.as_deref().and_then(|policy| policy.expires);
        let is_expiring = expires.is_some_and(|expires| now < expires && expires <= now.after(EXPIRING));
        let marks =
            [is_expiring.then_some(Self::Expiring), is_unused.then_some(Self::Unused), is_old.then_some(Self::Old)];
        marks.into_iter().flatten().filter(|_| key.revoked.is_none()).collect()
    }

    /// The mark in words.
    pub fn text(self) -> &'static str {
        match self {
            Self::Unused => "Unused for 90 days",
            Self::Old => "Older than a year",
            Self::Expiring => "Expires within 7 days",
        }
    }

    /// Advice to the owner, a sentence.
    pub fn advice(self) -> &'static str {
        match self {
            Self::Unused => "Revoke it if no program needs it any more.",
            Self::Old => "Rotate it.",
            Self::Expiring => "Create another key in time, or ask an administrator for a later expiry.",
        }
    }
}

impl KeyStatus {
    /// All statuses.
    pub const ALL: [Self; 7] = [
        Self::Active,
        Self::Revoked,
        Self::Expired,
        Self::Disabled,
        Self::UserRemoved,
        Self::UserSuspended,
        Self::OrgSuspended,
    ];

    /// The status in words.
    pub fn label(self) -> &'static str {
        match self {
            Self::Active => "Active",
            Self::Revoked => "Revoked",
            Self::Expired => "Expired",
            Self::Disabled => "Disabled",
            Self::UserRemoved => "Owner removed",
            Self::UserSuspended => "Owner suspended",
            Self::OrgSuspended => "Organization suspended",
        }
    }

    /// The word of records and parameters of the API, such as `user_removed`.
    pub fn word(self) -> String {
        match serde_json::to_value(self) {
            Ok(serde_json::Value::String(word)) => word,
            _ => unreachable!("a status is serialized as a word"),
        }
    }

    /// Name in addresses and style sheets of pages.
    pub fn name(self) -> &'static str {
        match self {
            Self::Active => "active",
            Self::Revoked => "revoked",
            Self::Expired => "expired",
            Self::Disabled => "disabled",
            Self::UserRemoved => "owner-removed",
            Self::UserSuspended => "owner-suspended",
            Self::OrgSuspended => "org-suspended",
        }
    }

    /// The status with this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|status| status.name() == name)
    }

    /// The first reason to refuse a key, in the order in which requests are checked.
    pub(super) fn new(key: &state::Key, user: Option<&state::User>, org: Option<&state::Org>, now: Micros) -> Self {
        let policy = key.policy.as_deref();
        if key.revoked.is_some() {
            Self::Revoked
        } else if policy.and_then(|policy| policy.expires).is_some_and(|expires| expires <= now) {
            Self::Expired
        } else if policy.is_some_and(|policy| policy.disabled.is_some()) {
            Self::Disabled
        } else if user.is_none_or(|user| user.removed.is_some()) {
            Self::UserRemoved
        } else if user.is_some_and(|user| user.suspended.is_some()) {
            Self::UserSuspended
        } else if org.is_some_and(|org| org.suspended) {
            Self::OrgSuspended
        } else {
            Self::Active
        }
    }
}
