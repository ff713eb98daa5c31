//! Users of a document, made what it says: persons and services.

use super::caller::{Caller, found};
use super::document::{OrgSpec, UserSpec};
use super::step::{Action, Fields, Named, PlanStep, plan_text};
use crate::management::operands::{find_org, normalize_permissions};
use crate::management::policy_text::permissions_text;
use crate::management::{
    ManagementError, Responsible, User, UserGrants, UserUpdate, create_service, create_user, remove_user, show_user,
    update_user,
};

/// The fields of every new user.
const NEW: [(&str, &str); 4] = [("responsible", "none"), ("plan", "none"), ("quota", "none"), ("suspended", "false")];

/// Makes a user what the document says.
pub(super) async fn make(
    by: Caller<'_>,
    org: &OrgSpec,
    spec: &UserSpec,
    of: Named,
) -> Result<Option<PlanStep>, ManagementError> {
    let Caller { management, actor, now } = by;
    let handle = &spec.handle();
    let before = found(show_user(management, actor, &org.name, handle, now).await)?;
    let Some(before) = before else {
        return if spec.removed { Ok(None) } else { create(by, org, spec, of).await.map(Some) };
    };
    if spec.removed {
        remove_user(management, actor, &org.name, handle, now).await?;
        return Ok(Some(PlanStep::new(Action::Withdraw, of)));
    }
    let permissions = spec.permissions.clone().map(normalize_permissions);
    let mut update = UserUpdate {
        permissions: permissions.filter(|wanted| *wanted != before.permissions),
        suspended: spec.suspended.filter(|wanted| *wanted != before.suspended.is_some()),
        plan: spec.plan.clone().filter(|wanted| *wanted != before.plan),
        quota: spec.quota.filter(|wanted| *wanted != before.quota),
        ..UserUpdate::default()
    };
    if let Some(wanted) = &spec.responsible {
        // The address of a person who was removed may be that of another one now.
        let person = found(show_user(management, actor, &org.name, wanted, now).await)?;
        let present = before.responsible.as_ref();
        let is_responsible = present
            .is_some_and(|present| person.map_or_else(|| present.label() == *wanted, |person| person.id == present.id));
        update.responsible = (!is_responsible).then(|| wanted.clone());
    }
    if update == UserUpdate::default() {
        return Ok(None);
    }
    let after = update_user(management, actor, &org.name, handle, update, now).await?;
    Ok(PlanStep::change(of, fields(&before), fields(&after)))
}

async fn create(by: Caller<'_>, org: &OrgSpec, spec: &UserSpec, of: Named) -> Result<PlanStep, ManagementError> {
    let Caller { management, actor, now } = by;
    let handle = &spec.handle();
    let conflict = |reason: &str| Err(ManagementError::ApplyConflict(reason.to_owned()));
    let id = find_org(management, &org.name).await?.id;
    if management.state.users_by_email(handle).await?.iter().any(|user| user.org == id && user.removed.is_some()) {
        return conflict(
            "was removed, for good; take it out of the file, or create another with `keygate user create`",
        );
    }
    let grants =
        UserGrants { permissions: spec.permissions.clone().unwrap_or_default(), plan: spec.plan.clone().flatten() };
    let quota = spec.quota.filter(Option::is_some);
    let mut user = match (&spec.service, &spec.responsible) {
        (None, _) => create_user(management, actor, &org.name, handle, grants, now).await?,
        (Some(_), None) => return conflict("is new, and needs a `responsible` person to be created with"),
        (Some(_), Some(person)) => create_service(management, actor, &org.name, handle, person, grants, now).await?,
    };
    let suspended = spec.suspended.filter(|suspended| *suspended);
    if suspended.is_some() || quota.is_some() {
        let update = UserUpdate { suspended, quota, ..UserUpdate::default() };
        user = update_user(management, actor, &org.name, handle, update, now).await?;
    }
    Ok(PlanStep::create(of, &NEW, fields(&user)))
}

fn fields(user: &User) -> Fields {
    let responsible = user.responsible.as_ref().map(Responsible::label);
    vec![
        ("permissions", permissions_text(&user.permissions)),
        ("responsible", responsible.unwrap_or_else(|| "none".to_owned())),
        ("plan", plan_text(user.plan.as_ref())),
        ("quota", plan_text(user.quota.as_ref())),
        ("suspended", user.suspended.is_some().to_string()),
    ]
}
