//! Users in the plan of `keygate apply`: persons and services.

use serde_json::json;

use super::document::{OrgSpec, UserSpec};
use super::org_users::OrgUsers;
use super::step::{Action, Step};
use crate::cli::call::Call;
use crate::cli::calls::{self, patch_user};
use ::control::management::{Responsible, User, UserKind};
use domain::identity::Permission;

/// The steps that make the users of an organization what the file says: first those of persons, who may be responsible
/// for the services.
pub(super) fn plan<'a>(org: &'a OrgSpec, users: &'a OrgUsers<'_>) -> impl Iterator<Item = Step> {
    let persons = org.users.iter().filter(|spec| spec.service.is_none());
    let services = org.users.iter().filter(|spec| spec.service.is_some());
    persons.chain(services).map(|spec| plan_user(org, spec, users))
}

/// The step that makes a user what the file says.
fn plan_user(org: &OrgSpec, spec: &UserSpec, users: &OrgUsers<'_>) -> Step {
    let handle = spec.handle();
    let mut step = Step::new(Action::Change, "user", format!("{}/{handle}", org.name));
    match users.valid(&handle) {
        Some(_) if spec.removed => {
            step.action = Action::Withdraw;
            step.calls.push(Call::delete(&["orgs", &org.name, "users", &handle]));
        }
        Some(user) => change_user(&mut step, org, spec, user, users),
        None if spec.removed => {}
        None if users.was_removed(&handle) => {
            step.conflict(
                "was removed, for good; take it out of the file, or create another with `keygate user create`",
            );
        }
        None => create_user(&mut step, org, spec, users),
    }
    step
}

fn change_user(step: &mut Step, org: &OrgSpec, spec: &UserSpec, user: &User, users: &OrgUsers<'_>) {
    let present = sorted(user.permissions.clone());
    if let Some(wanted) = spec.permissions.clone().map(sorted).filter(|wanted| *wanted != present) {
        let old = joined(&present);
        let new = joined(&wanted);
        let permit = patch_user(&org.name, &spec.handle(), &json!({ "permissions": wanted }));
        step.change("permissions", Some(old), new, permit);
    }
    if let Some(responsible) = spec.responsible.clone().filter(|wanted| !is_responsible(wanted, user, users)) {
        if !users.will_have(&responsible) {
            return step.conflict(&no_person(&responsible, org));
        }
        let old = user.responsible.as_ref().map(Responsible::label);
        let new = responsible.clone();
        let reassign = patch_user(&org.name, &spec.handle(), &json!({ "responsible": responsible }));
        step.change("responsible", old, new, reassign);
    }
    suspend_user(step, org, spec, user.suspended.is_some(), Some(user.suspended.is_some()));
}

/// Returns whether the person with this address is responsible for a service. The address of a person who was removed
/// may be that of another one now.
fn is_responsible(email: &str, service: &User, users: &OrgUsers<'_>) -> bool {
    let Some(present) = &service.responsible else { return false };
    users.valid(email).map_or_else(|| present.label() == email, |person| person.id == present.id)
}

fn create_user(step: &mut Step, org: &OrgSpec, spec: &UserSpec, users: &OrgUsers<'_>) {
    let permissions = spec.permissions.clone().map(sorted).unwrap_or_default();
    step.action = Action::Create;
    step.show("permissions", joined(&permissions));
    let handle = &spec.handle();
    if spec.service.is_none() {
        step.calls.push(calls::create_user(&org.name, handle, UserKind::Person, None, &permissions));
    } else {
        let Some(responsible) = spec.responsible.clone() else {
            return step.conflict("is new, and needs a `responsible` person to be created with");
        };
        if !users.will_have(&responsible) {
            return step.conflict(&no_person(&responsible, org));
        }
        step.show("responsible", responsible.clone());
        let call = calls::create_user(&org.name, handle, UserKind::Service, Some(&responsible), &permissions);
        step.calls.push(call);
    }
    suspend_user(step, org, spec, false, None);
}

fn no_person(responsible: &str, org: &OrgSpec) -> String {
    format!("there is no user {responsible} in organization {}", org.name)
}

/// Suspends or resumes a user, where the file says so. `shown` is the present state of a user that exists.
fn suspend_user(step: &mut Step, org: &OrgSpec, spec: &UserSpec, is_suspended: bool, shown: Option<bool>) {
    if let Some(wanted) = spec.suspended.filter(|wanted| *wanted != is_suspended) {
        let call = patch_user(&org.name, &spec.handle(), &json!({ "suspended": wanted }));
        step.change("suspended", shown.map(|shown| shown.to_string()), wanted.to_string(), call);
    }
}

fn sorted(mut permissions: Vec<Permission>) -> Vec<Permission> {
    permissions.sort_unstable();
    permissions.dedup();
    permissions
}

fn joined(permissions: &[Permission]) -> String {
    let joined = permissions.iter().map(Permission::as_str).collect::<Vec<_>>().join(",");
    if joined.is_empty() { "none".to_owned() } else { joined }
}
