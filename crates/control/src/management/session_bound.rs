//! Bound of the sessions of one person: a new session ends the oldest ones.

use super::actor::AuditActor;
use super::audited_change::apply_change_at;
use super::session::target;
use super::session_end::apply_end;
use super::{Management, ManagementError};
use domain::identity::PersonId;
use domain::session::TokenDigest;
use state::{self, Change, Membership};

/// Attempts to start a session while other sign-ins of the same person take the places that were made.
const MAX_SESSION_ATTEMPTS: usize = 5;

/// Creates a session. When its person has as many as a person may have, the oldest ones end.
pub(super) async fn add_session(
    management: &Management,
    session: &state::Session,
    digest: TokenDigest,
    chosen: Membership,
    by: AuditActor<'_>,
) -> Result<(), ManagementError> {
    let path = format!("session.start/{}", session.provider.as_deref().unwrap_or("link"));
    let mut attempts = 0;
    loop {
        attempts += 1;
        end_surplus_sessions(management, &session.person, by).await?;
        let change = Change::CreateSession { session: Box::new(session.clone()), digest };
        match apply_change_at(management, "session.start", &path, target(chosen.org, chosen.user), change, by).await {
            // Other sign-ins of the same person took the place.
            Err(ManagementError::TooManySessions(_)) if attempts < MAX_SESSION_ATTEMPTS => {}
            created => return created,
        }
    }
}

/// Ends the oldest sessions of a person until there is room for one more.
async fn end_surplus_sessions(
    management: &Management,
    person: &PersonId,
    by: AuditActor<'_>,
) -> Result<(), ManagementError> {
    let limit = usize::try_from(management.state.bounds().sessions_per_person).unwrap_or(usize::MAX);
    let sessions = management.state.sessions_of_person(person).await?;
    for session in sessions.iter().take((sessions.len() + 1).saturating_sub(limit)) {
        if session.is_live(by.now) {
            apply_end(management, session, by).await?;
        } else {
            // It ended by itself, so there is nothing to record.
            management.state.change(Change::EndSession { session: session.id }).await?;
        }
    }
    Ok(())
}
