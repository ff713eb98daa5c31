//! Federation rules in the plan of `keygate apply`.
//!
//! A rule is not changed in place: one that differs is removed, and created as the file says. No token is exchanged by
//! it in between; its keys stay.

use super::document::{OrgSpec, RuleSpec};
use super::org_users::OrgUsers;
use super::step::{Action, FieldChange, Step};
use crate::cli::calls::{create_rule, remove_rule};
use crate::cli::federation::claims_text;
use crate::cli::policy_text::{permissions_text, tags_text};
use ::control::management::{FEDERATED_KEY_LIFETIME, FederationRule, NewFederationRule};
use domain::identity::Permission;
use platform::settings::WithUnit;

/// The step that makes a rule what the file says.
pub(super) fn plan(org: &OrgSpec, spec: &RuleSpec, present: &[FederationRule], users: &OrgUsers<'_>) -> Step {
    let mut step = Step::new(Action::Change, "rule", format!("{}/{}", org.name, spec.name));
    let present = present.iter().find(|rule| rule.name == spec.name);
    let remove = || remove_rule(&org.name, &spec.name);
    if spec.removed {
        if present.is_some() {
            step.action = Action::Withdraw;
            step.calls.push(remove());
        }
        return step;
    }
    let mut wanted = spec.to_rule();
    if let Some(present) = present {
        wanted.max = wanted.max.or(Some(present.max));
        wanted.audiences = spec.audiences.clone().unwrap_or_else(|| present.audiences.clone());
        wanted.tags = spec.tags.clone().unwrap_or_else(|| present.tags.clone());
    }
    let new = fields(&wanted);
    let old = present.map(|present| fields(&as_in_file(present)));
    if old.as_ref() == Some(&new) {
        return step;
    }
    if !users.will_have(&wanted.user) {
        step.conflict(&format!("there is no service {} in organization {}", wanted.user, org.name));
        return step;
    }
    if let Some(beyond) = beyond_service(&wanted, users.permissions(&wanted.user)) {
        step.conflict(&format!(
            "the service {} does not have the permission {beyond}; give it to the service as well, or leave it out",
            wanted.user
        ));
        return step;
    }
    match old {
        None => {
            step.action = Action::Create;
            new.into_iter().filter(|(_, new)| new != "none").for_each(|(field, new)| step.show(field, new));
        }
        Some(old) => {
            let changed = old.into_iter().zip(new).filter(|(old, new)| old != new);
            step.changes.extend(changed.map(|((field, old), (_, new))| FieldChange { field, old: Some(old), new }));
            step.calls.push(remove());
        }
    }
    step.calls.push(create_rule(&org.name, &wanted));
    step
}

/// The first permission that the service will not have, which the creation would refuse.
fn beyond_service<'a>(rule: &'a NewFederationRule, of_service: &[Permission]) -> Option<&'a Permission> {
    rule.permissions.iter().find(|permission| !of_service.contains(permission))
}

/// The rule as a file would have it.
fn as_in_file(rule: &FederationRule) -> NewFederationRule {
    let FederationRule { name, user, service, issuer, audience, audiences, claims, permissions, max, tags, .. } =
        rule.clone();
    let user = service.unwrap_or_else(|| user.to_string());
    NewFederationRule { name, user, issuer, audience, audiences, claims, permissions, max: Some(max), tags }
}

fn or_none(texts: &[String]) -> String {
    if texts.is_empty() { "none".to_owned() } else { texts.join(" ") }
}

fn fields(rule: &NewFederationRule) -> [(&'static str, String); 8] {
    let max = rule.max.unwrap_or(FEDERATED_KEY_LIFETIME);
    [
        ("user", rule.user.clone()),
        ("issuer", rule.issuer.clone()),
        ("audience", rule.audience.clone()),
        ("audiences", or_none(&rule.audiences)),
        ("claims", claims_text(&rule.claims)),
        ("permissions", permissions_text(&rule.permissions)),
        ("max", WithUnit::Duration(max).to_string()),
        ("tags", tags_text(&rule.tags)),
    ]
}
