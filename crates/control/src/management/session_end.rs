//! Ends of web sessions: by their users, by administrators, by the operator.
//!
//! - A session may act in several organizations. An administrator of one ends its membership there; what the person
//!   does in the others is not this organization's business.

use super::actor::AuditActor;
use super::audited_change::apply_change_at;
use super::authorization::{Access, authorize};
use super::operands::{find_org, find_user};
use super::session::{Session, show, target};
use super::{Actor, Management, ManagementError, SignedInUser};
use domain::clock::Micros;
use domain::identity::{PersonId, SessionId};
use state::{self, Change, Membership};

/// Ends a signed-in user's own session.
///
/// # Errors
/// As for all operations.
pub async fn sign_out(management: &Management, user: &SignedInUser, now: Micros) -> Result<(), ManagementError> {
    let actor = Actor::User(Box::new(user.clone()));
    apply_end(management, &user.session, AuditActor { actor: &actor, now }).await
}

pub(super) async fn apply_end(
    management: &Management,
    session: &state::Session,
    by: AuditActor<'_>,
) -> Result<(), ManagementError> {
    let user = session.user().ok_or_else(|| ManagementError::NoSession(session.id.to_string()))?;
    let org = by.actor.org().unwrap_or(session.chosen);
    let path = format!("session.end/{}", session.id);
    let change = Change::EndSession { session: session.id };
    apply_change_at(management, "session.end", &path, target(org, user), change, by).await
}

/// Ends a session in one organization: whole, when the person acts in no other.
async fn apply_end_in(
    management: &Management,
    session: &state::Session,
    membership: Membership,
    by: AuditActor<'_>,
) -> Result<(), ManagementError> {
    let Membership { org, user } = membership;
    let path = format!("session.end/{}", session.id);
    let change = Change::EndMembership { session: session.id, org };
    apply_change_at(management, "session.end", &path, target(org, user), change, by).await
}

/// Ends the sessions of a user in the organization, at every gateway at once.
pub(super) async fn end_memberships(
    management: &Management,
    user: &state::User,
    by: AuditActor<'_>,
) -> Result<(), ManagementError> {
    let membership = Membership { org: user.org, user: user.id };
    for session in management.state.sessions_of_org(user.org, by.now).await? {
        if session.memberships.contains(&membership) {
            apply_end_in(management, &session, membership, by).await?;
        }
    }
    Ok(())
}

/// Ends a web session, at every gateway at once, and returns it. An administrator ends the session of another
/// person in the own organization only.
///
/// # Errors
/// [`ManagementError::NoSession`].
pub async fn end_session(
    management: &Management,
    actor: &Actor,
    id: SessionId,
    now: Micros,
) -> Result<Session, ManagementError> {
    let by = authorize(management, actor, Access::Session(id), now).await?;
    let session = management.state.session_by_id(id, now).await?;
    let session = session.ok_or_else(|| ManagementError::NoSession(id.to_string()))?;
    match actor.signed_in().filter(|user| user.person() != session.person) {
        Some(user) => {
            let membership = session.memberships.iter().find(|membership| membership.org == user.org.id);
            let membership = *membership.ok_or_else(|| ManagementError::NoSession(id.to_string()))?;
            apply_end_in(management, &session, membership, by).await?;
        }
        None => apply_end(management, &session, by).await?,
    }
    Ok(show(session, actor))
}

/// Ends all sessions of a signed-in user but the one that asks for it: those of the person, and those that sign-in
/// links began as the person's users. Returns their number.
///
/// # Errors
/// As for all operations.
pub async fn end_other_sessions(
    management: &Management,
    user: &SignedInUser,
    now: Micros,
) -> Result<usize, ManagementError> {
    let actor = Actor::User(Box::new(user.clone()));
    let by = AuditActor { actor: &actor, now };
    let of_links = user.session.memberships.iter().map(|membership| PersonId::from_user(membership.user));
    let mut ended = 0;
    for person in [user.person()].into_iter().chain(of_links) {
        for session in management.state.sessions_of_person(&person).await? {
            if session.id != user.session.id && session.is_live(now) {
                apply_end(management, &session, by).await?;
                ended += 1;
            }
        }
    }
    Ok(ended)
}

/// Ends all web sessions of a user, and returns them. For the operator.
///
/// # Errors
/// [`ManagementError::NoOrg`], [`ManagementError::NoUser`].
pub async fn end_sessions(
    management: &Management,
    actor: &Actor,
    org: &str,
    user: &str,
    now: Micros,
) -> Result<Vec<Session>, ManagementError> {
    let by = authorize(management, actor, Access::Operator, now).await?;
    let user = find_user(management, find_org(management, org).await?.id, user).await?;
    let mut ended = Vec::new();
    for session in management.state.sessions_of_org(user.org, now).await? {
        if session.memberships.iter().any(|membership| membership.user == user.id) {
            apply_end(management, &session, by).await?;
            ended.push(session.into());
        }
    }
    Ok(ended)
}
