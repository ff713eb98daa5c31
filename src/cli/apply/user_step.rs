//! Users in the plan of `keygate apply`.

use super::document::{OrgSpec, UserSpec};
use super::org_users::OrgUsers;
use super::plan::{Action, Step};
use ::control::admin::Operation;
use domain::identity::Permission;

/// The step that makes a user what the file says.
pub(super) fn plan(org: &OrgSpec, spec: &UserSpec, users: &OrgUsers<'_>) -> Step {
    let email = spec.email.to_lowercase();
    let mut step = Step::new(Action::Change, "user", format!("{}/{email}", org.name));
    let wanted = spec.permissions.clone().map(sorted);
    let reference = (org.name.clone(), email.clone());
    match users.valid(&email) {
        Some(_) if spec.removed => {
            step.action = Action::Withdraw;
            step.operations.push(Operation::RemoveUser { org: reference.0, user: reference.1 });
        }
        Some(user) => {
            let present = sorted(user.permissions.clone());
            if let Some(wanted) = wanted.filter(|wanted| *wanted != present) {
                let old = joined(&present);
                let new = joined(&wanted);
                let permit = Operation::PermitUser { org: reference.0, user: reference.1, permissions: wanted };
                step.change("permissions", Some(old), new, permit);
            }
            suspend_user(&mut step, org, spec, user.suspended.is_some(), Some(user.suspended.is_some()));
        }
        None if spec.removed => {}
        None if users.was_removed(&email) => {
            step.conflict(
                "was removed, for good; take it out of the file, or create another with `keygate user create`",
            );
        }
        None => {
            let permissions = wanted.unwrap_or_default();
            step.action = Action::Create;
            step.show("permissions", joined(&permissions));
            step.operations.push(Operation::CreateUser { org: reference.0, email: reference.1, permissions });
            suspend_user(&mut step, org, spec, false, None);
        }
    }
    step
}

/// Suspends or resumes a user, where the file says so. `shown` is the present state of a user that exists.
fn suspend_user(step: &mut Step, org: &OrgSpec, spec: &UserSpec, is_suspended: bool, shown: Option<bool>) {
    if let Some(wanted) = spec.suspended.filter(|wanted| *wanted != is_suspended) {
        let org = org.name.clone();
        let user = spec.email.to_lowercase();
        let operation = if wanted { Operation::SuspendUser { org, user } } else { Operation::ResumeUser { org, user } };
        step.change("suspended", shown.map(|shown| shown.to_string()), wanted.to_string(), operation);
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
