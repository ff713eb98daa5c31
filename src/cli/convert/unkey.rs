//! Unkey: keys by their hashes, as `keys.migrateKeys` takes them, or as lists of the API with `plaintext`.
//! Sources: `svc/api/openapi/spec/{paths/v2/keys/migrateKeys,common}` and
//! `docs/product/platform/apis/migrations/keys.mdx` of unkeyed/unkey.
//!
//! The keys with one `externalId` are those of one user. Without one, a key is its own user's.

use std::collections::HashMap;
use std::time::Duration;

use super::consumer::{Consumer, Key, Named, Place};
use super::field::Field;
use super::limit;
use super::report::Report;
use super::source::{Options, Reader};
use super::{key_text, users};
use domain::clock::Micros;
use domain::key::KeyDigest;
use domain::quota::Quota;
use platform::settings::Treatment;

/// Reason for which a key with a number of requests is left.
const COUNTED: &str = "the key has a number of requests left, or none; keygate counts none down: --keep-counted makes \
                       it a key without one";

/// Values around a list, which say nothing of their own.
const ENVELOPE: [&str; 7] = ["meta", "pagination", "total", "cursor", "hasMore", "migrationId", "apiId"];

const KNOWN: [&str; 18] = [
    "hash",
    "plaintext",
    "keyId",
    "id",
    "externalId",
    "ownerId",
    "identity",
    "name",
    "roles",
    "permissions",
    "enabled",
    "expires",
    "credits",
    "remaining",
    "refill",
    "ratelimits",
    "ratelimit",
    "deletedAt",
];

/// Values that say nothing about what a request may do.
const DESCRIPTIONS: [&str; 13] = [
    "start",
    "prefix",
    "byteLength",
    "createdAt",
    "updatedAt",
    "lastUsedAt",
    "workspaceId",
    "apiId",
    "keyAuthId",
    "encrypted",
    "recoverable",
    "environment",
    "pendingMigrationId",
];

/// Reasons for which some values have no counterpart.
const REASONS: [(&str, &str); 1] =
    [("meta", "the data of a key has no counterpart; no request shows it to an upstream")];

/// Reader of keys.
pub(super) struct Unkey {
    options: Options,
    consumers: Vec<Consumer>,
    /// Places in `consumers`.
    by_owner: HashMap<Box<str>, usize>,
}

impl Unkey {
    pub(super) fn new(options: Options) -> Self {
        Self { options, consumers: Vec::new(), by_owner: HashMap::new() }
    }

    /// Reason for which a key is left out, if there is one.
    fn left_reason(&self, item: &Field<'_>) -> Option<(Place, &'static str)> {
        let field = |name: &str| item.get(name);
        if let Some(deleted) = field("deletedAt") {
            return Some((deleted.place(), "the key is deleted"));
        }
        if let Some(expires) = field("expires") {
            let is_over = expiry(item).is_none_or(|at| at <= self.options.now);
            if is_over {
                return Some((expires.place(), "the key has expired, or its expiry is no time in milliseconds"));
            }
        }
        let credits = field("credits").and_then(|credits| credits.get("remaining")).or_else(|| field("remaining"));
        let is_used_up = credits.as_ref().is_some_and(|credits| credits.text() == Some("0"));
        let credits = credits.filter(|_| is_used_up || !self.options.keep_counted)?;
        Some((credits.place(), COUNTED))
    }

    /// Reads what the key may do less than its user.
    fn read_policy(&self, item: &Field<'_>, groups: &[Named], key: &mut Key) {
        if item.text_of("enabled") == Some("false") {
            key.disable(self.options.now);
        }
        if let Some(expires) = expiry(item) {
            key.expire(expires);
        }
        if self.options.permissions_from_groups {
            key.policy_mut().permissions = Some(users::sorted_permissions(groups));
        }
    }

    /// Finds or makes the consumer of a key.
    fn consumer(&mut self, item: &Field<'_>, report: &mut Report) -> Option<usize> {
        let identity = item.get("identity").and_then(|identity| identity.named("externalId"));
        let external = item.named("externalId").or(identity).or_else(|| item.named("ownerId"));
        let own = || item.named("keyId").or_else(|| item.named("id")).or_else(|| item.named("name"));
        let Some(owner) = external.clone().or_else(own) else {
            report.error(&item.place(), "has no externalId, keyId or name: a key is of a user; give it one");
            return None;
        };
        if let Some(index) = self.by_owner.get(&owner.text) {
            if external.is_none() {
                report.error(&owner.place, "is the name of two keys that have no externalId; give each one");
            }
            return Some(*index);
        }
        let mut consumer = Consumer::new(owner.place.clone());
        consumer.custom_id = external;
        self.by_owner.insert(owner.text.clone(), self.consumers.len());
        consumer.username = Some(owner);
        self.consumers.push(consumer);
        Some(self.consumers.len() - 1)
    }
}

/// Chooses how the value at a path is read.
pub(super) fn treat(path: &str) -> Treatment {
    if matches!(path, "" | "keys" | "data") { Treatment::Items } else { Treatment::Skip }
}

/// Reason for which a value that is not read has no counterpart.
pub(super) fn reason(path: &str) -> Option<String> {
    (!ENVELOPE.contains(&path)).then(|| format!("`{path}` has no counterpart"))
}

impl Reader for Unkey {
    fn take(&mut self, item: Field<'_>, _: &str, report: &mut Report) {
        let Some(digest) = read_digest(&item, report) else { return };
        if let Some((place, reason)) = self.left_reason(&item) {
            return report.leave(place, reason);
        }
        let Some(index) = self.consumer(&item, report) else { return };
        let own_groups = groups(&item, report);
        let mut key = Key { limit: read_limits(&item, report), ..key_text::key(item.place(), digest) };
        key.name = item.named("name").or_else(|| item.named("keyId"));
        self.read_policy(&item, &own_groups, &mut key);
        item.leave_others(&[&KNOWN[..], &DESCRIPTIONS].concat(), &REASONS, report);
        let consumer = &mut self.consumers[index];
        // The user has the permissions of all of its keys, and each key its own of them.
        consumer.groups.extend(own_groups);
        consumer.keys.push(key);
    }

    fn finish(self: Box<Self>, _: &mut Report) -> Vec<Consumer> {
        self.consumers
    }
}

/// The expiry of a key, which is in milliseconds.
fn expiry(item: &Field<'_>) -> Option<Micros> {
    item.number("expires").map(|ms: u64| Micros(ms.saturating_mul(1000)))
}

/// The digest of a key: its hash, or that of its text.
fn read_digest(item: &Field<'_>, report: &mut Report) -> Option<KeyDigest> {
    let plain = item.get("plaintext").map(|text| key_text::digest(&text, |_| None, report));
    let Some(hash) = item.get("hash") else {
        if plain.is_none() {
            report.error(&item.place(), "has neither a hash nor a plaintext: a list of the API has it with `decrypt`");
        }
        return plain.flatten();
    };
    // The older API has it with the kind of hash.
    let variant = hash.text_of("variant");
    let digest = match (hash.get("value"), variant) {
        (Some(value), Some("sha256_base64")) => key_text::decoded_digest(&value, report),
        (Some(value), _) => {
            report.error(&value.place(), "is a hash of another kind than sha256_base64; create a new key");
            None
        }
        (None, _) => key_text::decoded_digest(&hash, report),
    }?;
    if plain.is_some_and(|plain| plain.is_some_and(|plain| plain != digest)) {
        report.error(&hash.place(), "is not the hash of the plaintext beside it");
        return None;
    }
    Some(digest)
}

fn groups(item: &Field<'_>, report: &mut Report) -> Vec<Named> {
    let mut groups = Vec::new();
    for list in ["roles", "permissions"] {
        for role in item.list(list, report) {
            match role.text() {
                Some(text) => groups.push(Named { place: role.place(), text: text.into() }),
                None => groups.extend(role.named("name")),
            }
        }
    }
    groups
}

/// The limit of a key that applies to each of its requests.
fn read_limits(item: &Field<'_>, report: &mut Report) -> Option<Quota> {
    let mut limits = item.list("ratelimits", report);
    let identity = item.get("identity");
    if let Some(shared) = identity.and_then(|identity| identity.get("ratelimits")) {
        report.leave(shared.place(), "the limit is one of all keys of an identity; a key has a bucket of its own");
    }
    limits.retain(|limit| {
        let applies = limit.text_of("autoApply") == Some("true");
        if !applies {
            report.leave(limit.place(), "the limit applies where a verification names it (no `autoApply: true`)");
        }
        applies
    });
    limits.extend(item.get("ratelimit"));
    if let [_, second, ..] = &limits[..] {
        report.leave(second.place(), "there are several limits at once; a key has one bucket");
        return None;
    }
    let limit = limits.first()?;
    read_limit(limit).map_err(|reason| report.leave(limit.place(), reason)).ok()
}

/// A window, or, of the older API, a bucket; or why it has no counterpart.
fn read_limit(field: &Field<'_>) -> Result<Quota, String> {
    if let Some(interval) = field.number("refillInterval").map(Duration::from_millis) {
        let rate = field.number("refillRate").ok_or("the limit has no refillRate")?;
        return limit::bucket(rate, interval, field.number("limit").ok_or("the limit is no whole number")?);
    }
    limit::window(field.number("limit"), field.number("duration").map(Duration::from_millis))
}
