//! The plan of `keygate apply`: a pure comparison of a file with the present state.
//!
//! - Records that the file does not name, and fields that it does not have, stay as they are.
//! - Nothing is withdrawn unless the file says so, and nothing that was withdrawn comes back: a revoked key and a
//!   removed user are conflicts with a file that has them as valid.
//! - A plan of what was just applied is empty.

use std::fmt;

use serde_json::json;

use super::document::{Document, KeySpec, LimitSpec, OrgSpec};
use super::org_policy_step::patch_org;
use super::org_users::OrgUsers;
use super::present::{Present, PresentOrg};
use super::step::{Action, Step};
use super::{org_policy_step, policy_step, rule_step, user_step};
use crate::cli::call::Call;
use crate::cli::calls::{create_org, limit_key, revoke_key};
use crate::cli::output::seconds;
use ::control::management::{Key, KeyLimits, LimitUpdate};
use domain::identity::Permission;
use domain::names;
use domain::quota::Quota;
use platform::settings::WithUnit;
use state::{OrgPolicy, TooLate};

/// Compares a file with the present state.
pub(super) fn plan(document: &Document, present: &Present) -> Vec<Step> {
    document.organizations.iter().flat_map(|org| plan_org(org, present)).collect()
}

fn plan_org(spec: &OrgSpec, present: &Present) -> Vec<Step> {
    let existing = present.orgs.get(&spec.name);
    let users = OrgUsers::new(spec, existing);
    let mut steps = vec![org_step(spec, existing, present)];
    steps.extend(user_step::plan(spec, &users));
    let rules = existing.map_or(&[][..], |existing| &existing.rules);
    steps.extend(spec.federation_rules.iter().map(|rule| rule_step::plan(spec, rule, rules, &users)));
    steps.extend(spec.keys.iter().map(|key| key_step(spec, key, &users, present)));
    steps.retain(|step| !step.is_empty());
    steps
}

fn org_step(spec: &OrgSpec, existing: Option<&PresentOrg>, present: &Present) -> Step {
    let name = &spec.name;
    let org = existing.map(|existing| &existing.org);
    let mut step = Step::new(if org.is_none() { Action::Create } else { Action::Change }, "organization", name.clone());
    if org.is_none() {
        if let Some(other) = names::looks(name).iter().find_map(|look| present.looks.get(look)) {
            step.conflict(&format!("looks the same as the organization {other}; a name is one organization's"));
            return step;
        }
        step.calls.push(create_org(name));
    }
    let concurrent = org.and_then(|org| org.concurrent);
    if let Some(wanted) = spec.concurrent.filter(|wanted| *wanted != concurrent) {
        let old = org.map(|_| or_configured(concurrent));
        step.change("concurrent", old, or_configured(wanted), patch_org(spec, json!({ "concurrent": wanted })));
    }
    let suspended = org.is_some_and(|org| org.suspended);
    if let Some(wanted) = spec.suspended.filter(|wanted| *wanted != suspended) {
        let call = patch_org(spec, json!({ "suspended": wanted }));
        step.change("suspended", org.map(|_| suspended.to_string()), wanted.to_string(), call);
    }
    org_policy_step::plan(&mut step, spec, org);
    step
}

fn key_step(org: &OrgSpec, spec: &KeySpec, users: &OrgUsers<'_>, present: &Present) -> Step {
    let mut step = Step::new(Action::Change, "key", format!("{}/{}", org.name, spec.shown()));
    let id = match spec.digest() {
        Some(digest) => present.by_digest.get(&digest).copied(),
        None => spec.id,
    };
    match id.map(|id| (id, present.keys.get(&id))) {
        None if spec.revoked => {}
        None => new_key(&mut step, org, spec, users, present),
        Some((id, None)) => step.conflict(&format!("there is no key {id}")),
        Some((_, Some(key))) => existing_key(&mut step, org, spec, present.orgs.get(&org.name), users, key),
    }
    step
}

fn new_key(step: &mut Step, org: &OrgSpec, spec: &KeySpec, users: &OrgUsers<'_>, present: &Present) {
    let existing = present.orgs.get(&org.name);
    let user = spec.user.clone().unwrap_or_default();
    let name = spec.name.clone().unwrap_or_default();
    if !users.will_have(&user) {
        return step.conflict(&format!("there is no user {user} in organization {}", org.name));
    }
    // The ids of the keys of an organization begin with its tag, which it gets when it is created.
    if let Some(id) = spec.id.filter(|id| existing.is_none_or(|existing| existing.org.tag != id.tag())) {
        return step.conflict(&format!("has the id {id}, which does not begin with the tag of {}", org.name));
    }
    if let Some(beyond) = policy_step::beyond_user(spec, None, users.permissions(&user)) {
        return step.conflict(&beyond_user(&user, beyond));
    }
    let bounds = org_bounds(org, existing);
    if let Err(TooLate { latest }) = policy_step::expiry_of_new_key(spec, bounds, present.now) {
        let latest = seconds(latest);
        return step
            .conflict(&format!("would expire after {latest}, the latest that max_expiry of {} allows", org.name));
    }
    step.action = Action::Create;
    step.show("user", user.clone());
    let sha256 = spec.digest().unwrap_or_default();
    let limits = spec.limits.flatten();
    if let Some(limits) = limits {
        step.show("limits", limits.to_string());
    }
    let body = json!({
        "user": user, "sha256": sha256, "id": spec.id, "name": name, "limits": limits.map(LimitUpdate::from),
        "policy": policy_step::plan_new(step, spec, bounds), "disabled": spec.disabled.unwrap_or(false),
    });
    step.calls.push(Call::post(&["orgs", &org.name, "keys", "import"]).with_body(&body));
}

fn existing_key(
    step: &mut Step,
    org: &OrgSpec,
    spec: &KeySpec,
    existing: Option<&PresentOrg>,
    users: &OrgUsers<'_>,
    key: &Key,
) {
    let id = key.id;
    if let Some(other) = spec.id.filter(|other| *other != id) {
        return step.conflict(&format!("has the sha256 of key {id}, and the id {other}; a key made offline has both"));
    }
    if existing.is_none_or(|existing| existing.org.id != key.org) {
        return step.conflict(&format!("is key {id} of another organization than {}", org.name));
    }
    if spec.user.as_ref().is_some_and(|user| *user != key.email) {
        return step.conflict(&format!("is key {id} of the user {}; a key stays with its user", key.email));
    }
    if spec.name.as_ref().is_some_and(|name| *name != key.name) {
        return step.conflict(&format!("is key {id} with the name {}; a name is given once", key.name));
    }
    match (key.revoked.is_some(), spec.revoked) {
        (true, true) => return,
        (true, false) => {
            return step
                .conflict(&format!("key {id} is revoked, for good; say `revoked: true`, or take it out of the file"));
        }
        (false, true) => {
            step.action = Action::Withdraw;
            return step.calls.push(revoke_key(id));
        }
        (false, false) => {}
    }
    if let Some(beyond) = policy_step::beyond_user(spec, Some(key), users.permissions(&key.email)) {
        return step.conflict(&beyond_user(&key.email, beyond));
    }
    match spec.limits {
        Some(None) if key.limits.own => {
            step.change("limits", Some(shown(&key.limits)), "configured".into(), limit_key(id, None));
        }
        Some(Some(limits)) if !limits.are(&key.limits) => {
            let old = if key.limits.own { shown(&key.limits) } else { "configured".into() };
            step.change("limits", Some(old), limits.to_string(), limit_key(id, Some(limits.into())));
        }
        _ => {}
    }
    policy_step::plan_existing(step, spec, key, org_bounds(org, existing));
}

/// The policy of an organization when the file is applied; one that is not valid is a conflict of its own.
fn org_bounds(org: &OrgSpec, existing: Option<&PresentOrg>) -> OrgPolicy {
    org_policy_step::wanted(org, existing.map(|existing| &existing.org)).unwrap_or_default()
}

fn beyond_user(user: &str, beyond: &Permission) -> String {
    format!("the user {user} does not have the permission {beyond}; give it to the user as well, or leave it out")
}

impl LimitSpec {
    fn burst(self) -> u32 {
        self.burst.unwrap_or(self.requests)
    }

    /// Returns whether a key has these limits, as its own. A strict configuration makes them strict, too.
    fn are(self, limits: &KeyLimits) -> bool {
        let own = Quota { requests: self.requests, per: self.per, burst: self.burst(), strict: false };
        let in_force = Quota { strict: limits.strict, ..Quota::DEFAULT }.in_force(Some(own));
        limits.own && (in_force.requests, in_force.per, in_force.burst) == (limits.requests, limits.per, limits.burst)
    }
}

impl From<LimitSpec> for LimitUpdate {
    fn from(limits: LimitSpec) -> Self {
        Self { requests: Some(limits.requests), per: Some(limits.per), burst: Some(limits.burst()) }
    }
}

impl fmt::Display for LimitSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} per {}, burst {}", self.requests, WithUnit::Duration(self.per), self.burst())
    }
}

fn shown(limits: &KeyLimits) -> String {
    format!("{} per {}, burst {}", limits.requests, WithUnit::Duration(limits.per), limits.burst)
}

fn or_configured(concurrent: Option<u32>) -> String {
    concurrent.map_or_else(|| "configured".to_owned(), |concurrent| concurrent.to_string())
}
