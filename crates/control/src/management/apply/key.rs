//! Keys of a document, made what it says.
//!
//! - A field that the document has is the whole of it: tags and permissions that it does not name are removed.
//! - A new key is imported with its limits and its policy by one operation, so it never admits what these refuse.
//! - A key without an expiry in the document has the one that the policy of its organization gives it, and keeps it.

use std::collections::BTreeMap;
use std::time::Duration;

use super::caller::Caller;
use super::document::{KeySpec, LimitSpec, OrgSpec};
use super::step::{Action, Fields, Named, PlanStep, plan_text};
use crate::management::policy_text::{expires_text, networks_text, permissions_text, tags_text};
use crate::management::{
    Key, KeyImport, KeyLimits, KeyUpdate, LimitUpdate, ManagementError, Org, PolicyUpdate, disable_key, enable_key,
    find_keys_by_digest, import_key, revoke_key, show_key, show_org, update_key,
};
use domain::clock::Micros;
use domain::key::policy::{InvalidKeyPolicy, KeyPolicy};
use domain::quota::Quota;
use platform::settings::WithUnit;

/// The fields of every new key.
const NEW: [(&str, &str); 9] = [
    ("limits", "configured"),
    ("plan", "none"),
    ("quota", "none"),
    ("permissions", "all"),
    ("expires", "none"),
    ("networks", "any"),
    ("concurrent", "none"),
    ("tags", "none"),
    ("disabled", "false"),
];

/// Checks what a document says of the policy of a key, as the operations do.
pub(super) fn check(spec: &KeySpec) -> Result<(), InvalidKeyPolicy> {
    update_of(spec, &KeyPolicy::default()).into_patch().apply(&KeyPolicy::default()).validate()
}

/// Makes a key what the document says.
pub(super) async fn make(
    by: Caller<'_>,
    org: &OrgSpec,
    spec: &KeySpec,
    of: Named,
) -> Result<Option<PlanStep>, ManagementError> {
    let Caller { management, actor, now } = by;
    let id = match spec.digest() {
        Some(digest) => find_keys_by_digest(management, actor, &[digest], now).await?.into_values().next(),
        None => spec.id,
    };
    let Some(id) = id else {
        return if spec.revoked { Ok(None) } else { import(by, org, spec, of).await.map(Some) };
    };
    let key = show_key(management, actor, id, now).await?;
    let of_org = show_org(management, actor, &org.name, now).await?;
    if let Some(reason) = conflict(&key, &of_org, spec) {
        return Err(ManagementError::ApplyConflict(reason));
    }
    if key.revoked.is_some() {
        return Ok(None);
    }
    if spec.revoked {
        revoke_key(management, actor, id, now).await?;
        return Ok(Some(PlanStep::new(Action::Withdraw, of)));
    }
    let after = change(by, &key, &of_org, spec).await?;
    let named = |key: &Key| [vec![("name", key.name.clone())], fields(key, expires_text(key.policy.expires))].concat();
    let [before, after] = [&key, &after].map(named);
    Ok(PlanStep::change(of, before, after))
}

/// The reason for which an existing key cannot be the one of the document.
fn conflict(key: &Key, org: &Org, spec: &KeySpec) -> Option<String> {
    let id = key.id;
    if let Some(other) = spec.id.filter(|other| *other != id) {
        return Some(format!("has the sha256 of key {id}, and the id {other}; a key made offline has both"));
    }
    if key.org != org.id {
        return Some(format!("is key {id} of another organization than {}", org.name));
    }
    if spec.user.as_ref().is_some_and(|user| *user != key.email) {
        return Some(format!("is key {id} of the user {}; a key stays with its user", key.email));
    }
    let is_back = key.revoked.is_some() && !spec.revoked;
    is_back.then(|| format!("key {id} is revoked, for good; say `revoked: true`, or take it out of the file"))
}

async fn import(by: Caller<'_>, org: &OrgSpec, spec: &KeySpec, of: Named) -> Result<PlanStep, ManagementError> {
    let import = KeyImport {
        org: &org.name,
        user: spec.user.as_deref().unwrap_or_default(),
        sha256: spec.sha256.as_deref().unwrap_or_default(),
        id: spec.id,
        name: spec.name.as_deref().unwrap_or_default(),
        limits: spec.limits.flatten().map(LimitUpdate::from),
        plan: spec.plan.clone().flatten(),
        quota: spec.quota.flatten(),
        policy: update_of(spec, &KeyPolicy::default()),
        disabled: spec.disabled == Some(true),
    };
    let key = import_key(by.management, by.actor, import, by.now).await?;
    let given = key.policy.expires.filter(|_| spec.expires.flatten().is_none());
    let after = |given: Micros| {
        let time = Duration::from_micros(given.since(key.created));
        format!("{} after its creation", WithUnit::Duration(time))
    };
    let expires = given.map_or_else(|| expires_text(key.policy.expires), after);
    Ok(PlanStep::create(of, &NEW, fields(&key, expires)))
}

/// Changes a key, and returns it as it is then.
async fn change(by: Caller<'_>, key: &Key, org: &Org, spec: &KeySpec) -> Result<Key, ManagementError> {
    let Caller { management, actor, now } = by;
    let mut policy = update_of(spec, &key.policy);
    let gives_expiry = org.policy.default_expiry.or(org.policy.max_expiry).is_some();
    policy.expires = policy.expires.filter(|wanted| wanted.is_some() || !gives_expiry);
    let is_present = |wanted: &Option<LimitSpec>| match wanted {
        None => !key.limits.own,
        Some(limits) => are(*limits, &key.limits),
    };
    let limits = spec.limits.filter(|wanted| !is_present(wanted));
    let limits = limits.map(|own| own.map(|own| LimitUpdate::from(own).into()));
    let plan = spec.plan.clone().filter(|wanted| *wanted != key.plan);
    let quota = spec.quota.filter(|wanted| *wanted != key.quota);
    let name = spec.name.clone().filter(|wanted| *wanted != key.name);
    let update = KeyUpdate { name, policy, limits, plan, quota };
    let mut after = key.clone();
    if update != KeyUpdate::default() {
        after = update_key(management, actor, key.id, update, now).await?;
    }
    match spec.disabled.filter(|wanted| *wanted != key.policy.disabled.is_some()) {
        Some(true) => disable_key(management, actor, key.id, false, now).await,
        Some(false) => enable_key(management, actor, key.id, now).await,
        None => Ok(after),
    }
}

/// Returns whether a key has these limits, as its own. A strict configuration makes them strict, too.
fn are(limits: LimitSpec, present: &KeyLimits) -> bool {
    let LimitSpec { requests, per, burst } = limits;
    let own = Quota { requests, per, burst: burst.unwrap_or(requests), strict: false };
    let in_force = Quota { strict: present.strict, ..Quota::DEFAULT }.in_force(Some(own));
    present.own && (in_force.requests, in_force.per, in_force.burst) == (present.requests, present.per, present.burst)
}

/// The update that makes a policy the one of the document.
fn update_of(spec: &KeySpec, present: &KeyPolicy) -> PolicyUpdate {
    let permissions = spec.permissions.clone().map(|own| own.map(sorted));
    let networks = spec.networks.clone().map(|own| own.map(sorted).unwrap_or_default());
    let tags = spec.tags.clone().map(Option::unwrap_or_default).filter(|wanted| *wanted != present.tags);
    PolicyUpdate {
        permissions: permissions.filter(|wanted| *wanted != present.permissions),
        expires: spec.expires.map(|own| own.map(|expires| expires.0)).filter(|wanted| *wanted != present.expires),
        networks: networks.filter(|wanted| *wanted != present.networks).map(Some),
        concurrent: spec.concurrent.filter(|wanted| *wanted != present.concurrent),
        tags: tags.map(|wanted| Some(tag_changes(&present.tags, wanted))),
    }
}

/// The changes that make some tags of others.
fn tag_changes(before: &BTreeMap<String, String>, after: BTreeMap<String, String>) -> BTreeMap<String, Option<String>> {
    let removed = before.keys().map(|name| (name.clone(), None));
    removed.chain(after.into_iter().map(|(name, value)| (name, Some(value)))).collect()
}

fn sorted<T: Ord>(mut list: Vec<T>) -> Vec<T> {
    list.sort_unstable();
    list.dedup();
    list
}

fn fields(key: &Key, expires: String) -> Fields {
    let KeyLimits { requests, per, burst, own, .. } = key.limits;
    let limits = || format!("{requests} per {}, burst {burst}", WithUnit::Duration(per));
    let KeyPolicy { permissions, networks, concurrent, tags, disabled, .. } = &key.policy;
    vec![
        ("user", key.email.clone()),
        ("limits", if own { limits() } else { "configured".to_owned() }),
        ("plan", plan_text(key.plan.as_ref())),
        ("quota", plan_text(key.quota.as_ref())),
        ("permissions", permissions.as_deref().map_or_else(|| "all".to_owned(), permissions_text)),
        ("expires", expires),
        ("networks", networks_text(networks)),
        ("concurrent", concurrent.map_or_else(|| "none".to_owned(), |concurrent| concurrent.to_string())),
        ("tags", tags_text(tags)),
        ("disabled", disabled.is_some().to_string()),
    ]
}
