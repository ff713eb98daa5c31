//! Audited changes: a change of the state together with its audit record.

use std::time::Instant;

use uuid::Uuid;

use super::actor::AuditActor;
use super::{Actor, ErrorKind, Management, ManagementError, conditions};
use domain::budget::Cost;
use domain::identity::{AuthMethod, MANAGEMENT_METHOD, OrgId, UserId};
use domain::key::KeyId;
use journal::audit::{AuditEntry, ChangeUse, Outcome, Unavailable, Use, UseEnd};
use state::Change;

/// Operations, as records name them, and their texts.
pub const ACTIONS: [(&str, &str); 51] = [
    ("key.create", "Created a key"),
    ("key.import", "Imported a key"),
    ("key.rotate", "Rotated a key"),
    ("key.revoke", "Revoked a key"),
    ("key.set", "Changed the policy of a key"),
    ("key.rename", "Renamed a key"),
    ("key.disable", "Disabled a key"),
    ("key.disable_unused", "Key disabled as unused"),
    ("key.enable", "Enabled a key"),
    ("key.limits", "Changed the limits of a key"),
    ("key.plan", "Changed the plan of a key"),
    ("key.quota", "Changed the budget of a key"),
    ("key.update", "Changed a key"),
    ("user.create", "Added a user"),
    ("user.permit", "Changed the permissions of a user"),
    ("user.withdraw", "Withdrew a user"),
    ("user.suspend", "Suspended a user"),
    ("user.resume", "Resumed a user"),
    ("user.reassign", "Named another person responsible for a service"),
    ("user.plan", "Changed the plan of a user"),
    ("user.quota", "Changed the budget of a user"),
    ("user.update", "Changed a user"),
    ("user.remove", "Removed a user"),
    ("org.create", "Created the organization"),
    ("org.suspend", "Suspended the organization"),
    ("org.resume", "Resumed the organization"),
    ("org.policy", "Changed the policy of the organization for new keys"),
    ("org.limits", "Changed the limits of the organization"),
    ("org.plan", "Changed the plan of the organization"),
    ("org.quota", "Changed the budget of the organization"),
    ("org.update", "Changed the organization"),
    ("federation.create", "Created a federation rule"),
    ("federation.remove", "Removed a federation rule"),
    ("quota.recount", "Counted anew what is spent of a budget"),
    ("quota.reset", "Reset what is spent of a budget"),
    ("quota.near", "80 % of a budget is spent"),
    ("key.expiring", "A key expires soon"),
    ("key.leaked", "A key has leaked"),
    ("key.unused", "A key is disabled soon, because it is unused"),
    ("token.expiring", "A management token expires soon"),
    ("token.leaked", "A management token has leaked"),
    ("session.link", "Created a sign-in link"),
    ("session.start", "Signed in"),
    ("session.choose_org", "Switched to the organization"),
    ("session.end", "Ended a session"),
    ("token.create", "Created a management token"),
    ("token.revoke", "Revoked a management token"),
    ("audit.export", "Saved changes as a file"),
    ("state.export", "Exported data"),
    ("state.import", "Imported data"),
    ("state.accept", "Accepted the state"),
];

/// Target of a change, for its audit record.
#[derive(Clone, Copy, Debug)]
pub(super) struct Target {
    /// The organization; none when the state as a whole is exported or imported, as the operator alone may.
    pub(super) org: Option<OrgId>,
    /// The user, when a user or a user's key or session is changed.
    pub(super) user: Option<UserId>,
    /// The key, when a key is changed.
    pub(super) key: Option<KeyId>,
}

impl Target {
    /// The state as a whole.
    pub(super) const STATE: Self = Self { org: None, user: None, key: None };

    pub(super) fn of_key(key: &state::Key) -> Self {
        Self { org: Some(key.org), user: Some(key.user), key: Some(key.id) }
    }

    pub(super) fn of_user(user: &state::User) -> Self {
        Self { org: Some(user.org), user: Some(user.id), key: None }
    }
}

/// Opens the audit record, makes the change, and closes the record with its outcome. A key keeps the actor, too.
pub(super) async fn apply_change(
    management: &Management,
    action: &str,
    target: Target,
    change: Change,
    by: AuditActor<'_>,
) -> Result<(), ManagementError> {
    apply_change_at(management, action, action, target, change, by).await
}

/// The same with a path of its own in the record, for details that neither the action nor the target has.
pub(super) async fn apply_change_at(
    management: &Management,
    action: &str,
    path: &str,
    target: Target,
    change: Change,
    by: AuditActor<'_>,
) -> Result<(), ManagementError> {
    let withdraws = change.withdraws();
    let change = conditions::apply(by_rights(change, by.actor), by).by(&by.actor.audit_name(target.user));
    if management.is_trial {
        return Ok(management.state.change(change).await?);
    }
    // First the record: a change that cannot be recorded is not made.
    let entry = begin_change(management, action, path, target, withdraws, by).await?;
    let started = Instant::now();
    let changed = management.state.change(change).await.map_err(ManagementError::from);
    management.duration.observe(started.elapsed().as_secs_f64());
    // Before the answer: a kill after it leaves no doubt.
    entry.close_change(use_end(&changed, started)).await;
    changed
}

/// Opens the audit record of a change; of one that `withdraws` something also while the disk is nearly full.
pub(super) async fn begin_change(
    management: &Management,
    action: &str,
    path: &str,
    target: Target,
    withdraws: bool,
    by: AuditActor<'_>,
) -> Result<AuditEntry, Unavailable> {
    let actor = by.actor.audit_name(target.user);
    let opening = use_opening(action, path, target, by);
    let token_id = by.actor.token();
    management
        .journal
        .begin_change(&ChangeUse { opening, actor: &actor, subject: target.user, token_id }, withdraws)
        .await
}

/// The change by the rights of the user who bounds the actor, which the state checks as it makes it.
fn by_rights(change: Change, actor: &Actor) -> Change {
    match actor.bounded_user() {
        Some(person) => change.by_person(person),
        None => change,
    }
}

/// The opening of an audit record. The method is `ADMIN` and the path the action, however the operation was requested.
pub(super) fn use_opening<'a>(action: &'a str, path: &'a str, target: Target, by: AuditActor<'a>) -> Use<'a> {
    debug_assert!(ACTIONS.iter().any(|(known, _)| *known == action), "{action} has no row, by which it would be found");
    let client = by.actor.client();
    Use {
        id: Uuid::now_v7(),
        time: by.now,
        number: None,
        key_id: target.key,
        user_id: by.actor.user(target.user),
        org_id: target.org,
        auth_method: match by.actor {
            Actor::Operator(_) => AuthMethod::AdminSocket,
            Actor::Program(_) => AuthMethod::Token,
            Actor::Visitor(_) | Actor::User(_) => AuthMethod::Session,
        },
        ip: client.and_then(|client| client.ip),
        user_agent: client.and_then(|client| client.user_agent.as_deref()).map(str::as_bytes),
        action,
        method: MANAGEMENT_METHOD,
        path,
        provisional: false,
        cost: Cost::ONE,
        budget: None,
        trace_id: None,
    }
}

pub(super) fn use_end<T>(changed: &Result<T, ManagementError>, started: Instant) -> UseEnd {
    let (outcome, status) = match changed {
        Ok(_) => (Outcome::Completed, http::StatusCode::OK),
        Err(e) if e.is_unconfirmed() => (Outcome::Unconfirmed, e.kind().status()),
        // The state may have made the change before it became unavailable, so the record must not say that it failed.
        Err(e) if e.is_in_doubt() => (Outcome::InDoubt, e.kind().status()),
        Err(e) if e.kind() == ErrorKind::Unavailable => (Outcome::Aborted, e.kind().status()),
        Err(e) => (Outcome::ClientError, e.kind().status()),
    };
    UseEnd {
        outcome,
        status: Some(status.as_u16()),
        duration_us: u64::try_from(started.elapsed().as_micros()).unwrap_or(u64::MAX),
        request_bytes: 0,
        response_bytes: 0,
    }
}
