//! Policies of keys in the plan of `keygate apply`.
//!
//! - A field that the file has is the whole of it: tags and permissions that it does not name are removed.
//! - A new key is imported with its policy by one operation, so it never admits what the policy refuses.
//! - A key without an expiry in the file has the one that the policy of its organization gives it, and keeps it.

use std::collections::BTreeMap;
use std::time::Duration;

use super::document::KeySpec;
use super::step::{FieldChange, Step};
use crate::cli::calls::{disable_key, enable_key, set_key};
use crate::cli::policy_text::{expires_text, networks_text, permissions_text, tags_text};
use ::control::management::{Key, PolicyUpdate};
use domain::clock::Micros;
use domain::identity::Permission;
use domain::key::policy::{InvalidKeyPolicy, KeyPolicy, Network};
use platform::settings::WithUnit;
use state::{OrgPolicy, TooLate};

/// Checks what a file says of the policy of a key, as the operations do.
pub(super) fn check(spec: &KeySpec) -> Result<(), InvalidKeyPolicy> {
    wanted(spec, &KeyPolicy::default()).validate()
}

/// The first permission that a key would have beyond its user, which the operations refuse.
pub(super) fn beyond_user<'a>(spec: &'a KeySpec, key: Option<&Key>, of_user: &[Permission]) -> Option<&'a Permission> {
    let present = key.and_then(|key| key.policy.permissions.as_deref());
    let wanted = spec.permissions.as_ref()?.as_deref()?;
    // Permissions that stay as they are are not set again: the user may have lost it since.
    let changes = present.is_none_or(|present| present != sorted(wanted));
    wanted.iter().find(|permission| changes && !of_user.contains(permission))
}

/// The expiry of a new key in an organization with this policy.
///
/// # Errors
/// [`TooLate`], as of the operation that would create the key.
pub(super) fn expiry_of_new_key(spec: &KeySpec, bounds: OrgPolicy, now: Micros) -> Result<Option<Micros>, TooLate> {
    bounds.expiry_of_new_key(spec.expires.flatten().map(|expires| expires.0), now)
}

/// The policy of a new key in an organization with this policy, which the step shows.
pub(super) fn plan_new(step: &mut Step, spec: &KeySpec, bounds: OrgPolicy) -> PolicyUpdate {
    let (changes, update) = difference(&KeyPolicy::default(), &wanted(spec, &KeyPolicy::default()));
    changes.into_iter().for_each(|FieldChange { field, new, .. }| step.show(field, new));
    if let Some(given) = given_expiry(bounds).filter(|_| update.expires.is_none()) {
        step.show("expires", format!("{} after its creation", WithUnit::Duration(given)));
    }
    if spec.disabled == Some(true) {
        step.show("disabled", true.to_string());
    }
    update
}

/// Makes the policy of an existing key what the file says.
pub(super) fn plan_existing(step: &mut Step, spec: &KeySpec, key: &Key, bounds: OrgPolicy) {
    let id = key.id;
    let mut wanted = wanted(spec, &key.policy);
    if wanted.expires.is_none() && given_expiry(bounds).is_some() {
        // Without one in the file, a key has the expiry that its organization has given it.
        wanted.expires = key.policy.expires;
    }
    let (changes, update) = difference(&key.policy, &wanted);
    if !update.is_empty() {
        step.changes.extend(changes);
        step.calls.push(set_key(id, &update));
    }
    let disabled = key.policy.disabled.is_some();
    if let Some(wanted) = spec.disabled.filter(|wanted| *wanted != disabled) {
        let call = if wanted { disable_key(id, false) } else { enable_key(id) };
        step.change("disabled", Some(disabled.to_string()), wanted.to_string(), call);
    }
}

/// Time from the creation of a key to its expiry, where an organization gives one to keys without.
fn given_expiry(bounds: OrgPolicy) -> Option<Duration> {
    [bounds.default_expiry, bounds.max_expiry].into_iter().flatten().min()
}

/// The policy that the file wants of a key with this one.
fn wanted(spec: &KeySpec, present: &KeyPolicy) -> KeyPolicy {
    let KeyPolicy { permissions, expires, networks, concurrent, disabled, enabled, tags } = present.clone();
    let permissions_in_file = spec.permissions.as_ref().map(|own| own.as_deref().map(sorted));
    let networks_in_file = spec.networks.as_ref().map(|own| own.as_deref().map(sorted).unwrap_or_default());
    KeyPolicy {
        permissions: permissions_in_file.unwrap_or(permissions),
        expires: spec.expires.map_or(expires, |own| own.map(|expires| expires.0)),
        networks: networks_in_file.unwrap_or(networks),
        concurrent: spec.concurrent.unwrap_or(concurrent),
        disabled,
        enabled,
        tags: spec.tags.clone().map_or(tags, Option::unwrap_or_default),
    }
}

/// The changes from one policy to another, and the update that makes them.
fn difference(before: &KeyPolicy, after: &KeyPolicy) -> (Vec<FieldChange>, PolicyUpdate) {
    let mut changes = Vec::new();
    let mut update = PolicyUpdate::default();
    let mut change = |field, old: String, new: String| changes.push(FieldChange { field, old: Some(old), new });
    if before.permissions != after.permissions {
        let text = |own: &Option<Vec<Permission>>| own.as_deref().map_or("all".to_owned(), permissions_text);
        change("permissions", text(&before.permissions), text(&after.permissions));
        update.permissions = Some(after.permissions.clone());
    }
    if before.expires != after.expires {
        change("expires", expires_text(before.expires), expires_text(after.expires));
        update.expires = Some(after.expires);
    }
    if before.networks != after.networks {
        change("networks", networks_text(&before.networks), networks_text(&after.networks));
        update.networks = Some(Some(after.networks.clone()).filter(|networks: &Vec<Network>| !networks.is_empty()));
    }
    if before.concurrent != after.concurrent {
        let text = |own: Option<u32>| own.map_or("none".to_owned(), |own| own.to_string());
        change("concurrent", text(before.concurrent), text(after.concurrent));
        update.concurrent = Some(after.concurrent);
    }
    if before.tags != after.tags {
        change("tags", tags_text(&before.tags), tags_text(&after.tags));
        update.tags = Some(Some(tag_changes(&before.tags, &after.tags)));
    }
    (changes, update)
}

/// The changes that make some tags of others.
fn tag_changes(
    before: &BTreeMap<String, String>,
    after: &BTreeMap<String, String>,
) -> BTreeMap<String, Option<String>> {
    let removed = before.keys().filter(|name| !after.contains_key(*name)).map(|name| (name.clone(), None));
    let set = after.iter().filter(|(name, value)| before.get(*name) != Some(value));
    removed.chain(set.map(|(name, value)| (name.clone(), Some(value.clone())))).collect()
}

fn sorted<T: Ord + Clone>(list: &[T]) -> Vec<T> {
    let mut list = list.to_vec();
    list.sort_unstable();
    list.dedup();
    list
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(fields: &str) -> KeySpec {
        serde_yaml::from_str(&format!("{{ id: abcDEF123, {fields} }}")).unwrap()
    }

    #[test]
    fn difference_of_equal_policies_is_empty_and_the_update_makes_the_wanted_one() {
        let full = spec(
            "permissions: [b, a, b], expires: 2027-01-31, networks: [10.0.0.0/8, '::ffff:9.0.0.0/104'], concurrent: 3, \
             tags: { team: billing }",
        );
        let policy = wanted(&full, &KeyPolicy::default());
        assert_eq!(policy.validate(), Ok(()));
        for same in [&full, &spec("name: x")] {
            let (changes, update) = difference(&policy, &wanted(same, &policy));
            assert!(changes.is_empty() && update.is_empty(), "{changes:?}");
        }
        let cleared = spec("permissions: null, expires: null, networks: null, concurrent: null, tags: null");
        let (changes, update) = difference(&policy, &wanted(&cleared, &policy));
        assert_eq!(changes.len(), 5);
        assert_eq!((update.permissions, update.expires, update.networks), (Some(None), Some(None), Some(None)));
        assert_eq!(update.tags, Some(Some([("team".to_owned(), None)].into())));
        let (changes, _) = difference(&policy, &wanted(&spec("permissions: []"), &policy));
        assert_eq!((changes[0].old.as_deref(), &*changes[0].new), (Some("a,b"), "none"));
    }
}
