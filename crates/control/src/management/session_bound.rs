//! Bound of the sessions of one person: a new session ends the oldest ones.

use super::actor::AuditActor;
use super::sessions::target;
use super::{Management, ManagementError};
use domain::identity::PersonId;
use domain::session::TokenDigest;
use state::{self, Change, Membership};

/// Attempts to start a session while other sign-ins of the same person take the places that were made.
const MAX_SESSION_ATTEMPTS: usize = 5;

impl Management {
    /// Creates a session. When its person has as many as a person may have, the oldest ones end.
    pub(super) async fn add_session(
        &self,
        session: &state::Session,
        digest: TokenDigest,
        chosen: Membership,
        by: AuditActor<'_>,
    ) -> Result<(), ManagementError> {
        let path = format!("session.start/{}", session.provider.as_deref().unwrap_or("link"));
        let mut attempts = 0;
        loop {
            attempts += 1;
            self.end_surplus_sessions(&session.person, by).await?;
            let change = Change::CreateSession { session: Box::new(session.clone()), digest };
            match self.apply_change_at("session.start", &path, target(chosen.org, chosen.user), change, by).await {
                // Other sign-ins of the same person took the place.
                Err(ManagementError::TooManySessions(_)) if attempts < MAX_SESSION_ATTEMPTS => {}
                created => return created,
            }
        }
    }

    /// Ends the oldest sessions of a person until there is room for one more.
    async fn end_surplus_sessions(&self, person: &PersonId, by: AuditActor<'_>) -> Result<(), ManagementError> {
        let limit = usize::try_from(self.state.bounds().sessions_per_person).unwrap_or(usize::MAX);
        let sessions = self.state.sessions_of_person(person).await?;
        for session in sessions.iter().take((sessions.len() + 1).saturating_sub(limit)) {
            if session.is_live(by.now) {
                self.apply_end(session, by).await?;
            } else {
                // It ended by itself, so there is nothing to record.
                self.state.change(Change::EndSession { session: session.id }).await?;
            }
        }
        Ok(())
    }
}
