//! A change and its record.

use std::time::Instant;

use uuid::Uuid;

use super::actor::AuditActor;
use super::{ErrorKind, Management, ManagementError};
use crate::audit::{Outcome, Use, UseEnd};
use crate::identity::{AuthMethod, OrgId, UserId};
use crate::key::KeyId;
use crate::state::Change;

/// What a change is made to, for its record.
#[derive(Clone, Copy, Debug)]
pub(super) struct Target {
    /// The organization.
    pub(super) org: OrgId,
    /// The user, when the change is to one or to one's key.
    pub(super) user: Option<UserId>,
    /// The key, when the change is to one.
    pub(super) key: Option<KeyId>,
}

impl Management {
    /// Begins the record, makes the change, and closes the record with what became of it.
    pub(super) async fn change(
        &self,
        action: &str,
        target: Target,
        change: Change,
        by: AuditActor<'_>,
    ) -> Result<(), ManagementError> {
        self.change_at(action, action, target, change, by).await
    }

    /// The same, where the action alone does not say it all: in the path of the record.
    pub(super) async fn change_at(
        &self,
        action: &str,
        path: &str,
        target: Target,
        change: Change,
        by: AuditActor<'_>,
    ) -> Result<(), ManagementError> {
        let entry = self.journal.begin(&opening(action, path, target, by)).await?;
        let started = Instant::now();
        let changed = self.state.change(change).await.map_err(ManagementError::from);
        self.duration.observe(started.elapsed().as_secs_f64());
        entry.close(end(&changed, started));
        changed
    }
}

/// The record's beginning. `ADMIN` stands for the method and the action for the path: what was done is known by its action,
/// whichever way it was asked for. The user is who did it, where that is a person of the organization, and else whom it
/// was done to.
fn opening<'a>(action: &'a str, path: &'a str, target: Target, by: AuditActor<'a>) -> Use<'a> {
    let client = by.actor.client();
    Use {
        id: Uuid::now_v7(),
        time: by.now,
        number: None,
        key_id: target.key,
        user_id: by.actor.user_in(target.org).or(target.user),
        org_id: Some(target.org),
        auth_method: if client.is_some() { AuthMethod::Session } else { AuthMethod::AdminSocket },
        ip: client.and_then(|client| client.ip),
        user_agent: client.and_then(|client| client.user_agent.as_deref()).map(str::as_bytes),
        action,
        method: "ADMIN",
        path,
        provisional: false,
    }
}

fn end(changed: &Result<(), ManagementError>, started: Instant) -> UseEnd {
    let (outcome, status) = match changed {
        Ok(()) => (Outcome::Completed, http::StatusCode::OK),
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
