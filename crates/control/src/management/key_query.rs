//! Filter and order of a list of keys.

use std::time::Duration;

use serde::Serialize;

use super::{Key, KeySort, KeyStatus, duration_text};
use domain::clock::Micros;
use domain::identity::UserId;
use domain::key::{self, KeyDigest, KeyId};
use domain::names;

/// Filter and order of a list of keys. A filter that is empty lists every key. Cursors are sealed over its JSON,
/// so that a change of that form ends them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct KeyQuery {
    /// The id of a key or the SHA-256 of a whole key, which are looked up; else a part of the name, of the owner's
    /// email address, of the key id or of a tag as `NAME=VALUE`.
    pub text: String,
    /// Part of the name, in any case.
    pub name: String,
    /// Id or email address of the owner.
    pub user: String,
    /// The only status that is listed; none for any.
    pub status: Option<KeyStatus>,
    /// Keys that were not used for this time, counted from their creation when they never were.
    #[serde(with = "duration_text::option")]
    pub unused_for: Option<Duration>,
    /// Keys that expire within this time, and have not expired yet.
    #[serde(with = "duration_text::option", skip_serializing_if = "Option::is_none")]
    pub expires_within: Option<Duration>,
    /// Field by which the list is sorted.
    #[serde(skip_serializing_if = "KeySort::is_created")]
    pub sort: KeySort,
    /// `true`: descending, so by creation the newest first; `false`: ascending.
    #[serde(rename = "newest_first")]
    pub descending: bool,
}

/// A key that a text names.
#[derive(Clone, Copy, Debug)]
pub(super) enum NamedKey {
    /// By its id, which may as well be a part of a name.
    Id(KeyId),
    /// By the SHA-256 of the whole key.
    Digest(KeyDigest),
}

impl KeyQuery {
    /// The key that the text names; none when it only describes keys.
    pub(super) fn named_key(&self) -> Option<NamedKey> {
        if let Ok(digest) = KeyDigest::from_hex(&self.text) {
            return Some(NamedKey::Digest(digest));
        }
        self.text.strip_prefix(key::PREFIX).unwrap_or(&self.text).parse().ok().map(NamedKey::Id)
    }

    /// The owner, when they are given by id: their keys are a list of their own.
    pub(super) fn owner(&self) -> Option<UserId> {
        self.user.parse().ok()
    }

    /// Returns `true` if every key matches.
    pub(super) fn is_unfiltered(&self) -> bool {
        *self == Self { sort: self.sort, descending: self.descending, ..Self::default() }
    }

    pub(super) fn matches(&self, key: &Key, now: Micros) -> bool {
        self.matches_text(key) && self.matches_fields(key, now)
    }

    /// Compares all but the text.
    pub(super) fn matches_fields(&self, key: &Key, now: Micros) -> bool {
        let owner_matches = || match self.owner() {
            Some(owner) => owner == key.user,
            None => key.email == names::normalize_handle(&self.user),
        };
        let is_unused = |time| key.last_used.unwrap_or(key.created).after(time) <= now;
        let expires = key.policy.expires.filter(|expires| now < *expires);
        let is_expiring = |time| expires.is_some_and(|expires| expires <= now.after(time));
        contains(&key.name, &self.name)
            && (self.user.is_empty() || owner_matches())
            && self.status.is_none_or(|status| status == key.status)
            && self.unused_for.is_none_or(is_unused)
            && self.expires_within.is_none_or(is_expiring)
    }

    /// Names, email addresses and tags are compared without case, key ids with it.
    fn matches_text(&self, key: &Key) -> bool {
        contains(&key.name, &self.text)
            || contains(&key.email, &self.text)
            || key.id.as_str().contains(&self.text)
            || key.policy.tags.iter().any(|(name, value)| contains(&format!("{name}={value}"), &self.text))
    }
}

/// Returns whether a field has this part, in any case. Every field has the empty one.
fn contains(field: &str, part: &str) -> bool {
    field.to_lowercase().contains(&part.to_lowercase())
}
