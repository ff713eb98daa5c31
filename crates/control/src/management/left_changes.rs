//! Changes that a killed gateway has left without an outcome: it died between the commit and the record, or before the
//! commit. The next start looks at the state, and records what holds.
//!
//! | the state | outcome |
//! |---|---|
//! | has what the change was to make | `completed` |
//! | does not have it | `aborted` |
//! | does not tell: a value was set, or the record is gone | `in_doubt` |
//! | gives no answer | none yet: it is asked again |
//!
//! An announcement is completed when its claim has the id of the record.

use std::time::Duration;

use tokio::time::sleep;

use super::Management;
use super::announcement::{ANNOUNCED, claim_left};
use domain::clock;
use domain::identity::{OrgId, UserId};
use domain::key::KeyId;
use journal::audit::{Outcome, Record};
use state::{Key, Unavailable, User};

/// Pause before a state that gave no answer is asked again, and between two looks at what processes have left.
const INTERVAL: Duration = Duration::from_secs(1);

/// Target of a change that was left open, as its record says: the state is asked for it.
enum Question {
    Key(KeyId, fn(&Key) -> bool),
    KeyExists(KeyId),
    KeyRotated(KeyId),
    Org(OrgId, fn(&state::Org) -> bool),
    OrgExists(OrgId),
    User(OrgId, UserId, fn(&User) -> bool),
    UserExists(OrgId, UserId),
    Token { id: String, revoked: bool },
    Rule { org: OrgId, name: String, exists: bool },
    SessionEnded(String),
}

/// Records the outcomes of changes that processes which are gone have left, for as long as the task lives.
pub async fn end_left_changes(management: &Management) {
    let mut left = Vec::new();
    loop {
        left = end_changes(management, left).await;
        sleep(INTERVAL).await;
    }
}

/// The same once: changes about which the state gives no answer are left to the next start.
pub async fn end_left_changes_once(management: &Management) {
    end_changes(management, Vec::new()).await;
}

/// Records the outcomes of these changes, and of those that were left since; returns those without an answer.
async fn end_changes(management: &Management, mut changes: Vec<Record>) -> Vec<Record> {
    changes.extend(management.journal.take_left_changes().unwrap_or_else(|error| {
        tracing::warn!(%error, "cannot read the changes that the last gateway left without an outcome");
        Vec::new()
    }));
    let mut unanswered = Vec::new();
    for change in changes {
        let holds = if ANNOUNCED.contains(&&*change.action) {
            claim_left(management, &change).await.ok()
        } else {
            holds(management, &change).await.ok()
        };
        let Some(holds) = holds else {
            unanswered.push(change);
            continue;
        };
        let outcome = match holds {
            Some(true) => Outcome::Completed,
            Some(false) => Outcome::Aborted,
            None => Outcome::InDoubt,
        };
        tracing::warn!(id = %change.id, action = change.action, outcome = outcome.name(),
            "the last gateway left a change without an outcome; recorded what the state says");
        management.journal.end_left_change(change.id, outcome);
    }
    unanswered
}

/// Returns whether the state has what a change was to make; none when it does not tell.
async fn holds(management: &Management, change: &Record) -> Result<Option<bool>, Unavailable> {
    // An export changes nothing, and its file is not complete.
    if change.action == "state.export" {
        return Ok(Some(false));
    }
    let Some(question) = Question::of(change) else { return Ok(None) };
    let state = &management.state;
    Ok(match question {
        Question::Key(id, is_made) => state.key(id).await?.as_ref().map(is_made),
        Question::KeyExists(id) => Some(state.key(id).await?.is_some()),
        Question::KeyRotated(id) => state.key(id).await?.map(|key| key.rotated >= Some(change.time)),
        Question::Org(id, is_made) => state.org(id).await?.as_ref().map(is_made),
        Question::OrgExists(id) => Some(state.org(id).await?.is_some()),
        Question::User(org, id, is_made) => state.member(org, id).await?.map(|(_, user)| is_made(&user)),
        Question::UserExists(org, id) => Some(state.member(org, id).await?.is_some()),
        Question::Token { id, revoked } => {
            let Ok(id) = id.parse() else { return Ok(None) };
            let token = state.management_token(id).await?;
            if revoked { token.map(|token| token.revoked.is_some()) } else { Some(token.is_some()) }
        }
        Question::Rule { org, name, exists } => Some(state.federation_rule(org, &name).await?.is_some() == exists),
        Question::SessionEnded(id) => {
            let Ok(id) = id.parse() else { return Ok(None) };
            Some(state.session_by_id(id, clock::now()).await?.is_none())
        }
    })
}

impl Question {
    /// The question about a change; none where the record does not say what was set.
    fn of(change: &Record) -> Option<Self> {
        let Record { key_id: key, org_id: org, subject: user, .. } = *change;
        let name = || change.path.split_once('/').map(|(_, name)| name.to_owned());
        Some(match change.action.as_str() {
            "key.create" | "key.import" => Self::KeyExists(key?),
            "key.rotate" => Self::KeyRotated(key?),
            "key.revoke" => Self::Key(key?, |key| key.revoked.is_some()),
            "key.disable" | "key.disable_unused" => Self::Key(key?, is_disabled),
            "key.enable" => Self::Key(key?, |key| !is_disabled(key)),
            "org.create" => Self::OrgExists(org?),
            "org.suspend" => Self::Org(org?, |org| org.suspended),
            "org.resume" => Self::Org(org?, |org| !org.suspended),
            "user.create" => Self::UserExists(org?, user?),
            "user.remove" => Self::User(org?, user?, |user| user.removed.is_some()),
            "user.suspend" => Self::User(org?, user?, |user| user.suspended.is_some()),
            "user.resume" => Self::User(org?, user?, |user| user.suspended.is_none()),
            "user.withdraw" => Self::User(org?, user?, |user| user.withdrawn.is_some()),
            "token.create" => Self::Token { id: name()?, revoked: false },
            // Of a leaked token, its place follows the id.
            "token.revoke" => Self::Token { id: name()?.split('/').next()?.to_owned(), revoked: true },
            "federation.create" => Self::Rule { org: org?, name: name()?, exists: true },
            "federation.remove" => Self::Rule { org: org?, name: name()?, exists: false },
            "session.end" => Self::SessionEnded(name()?),
            _ => return None,
        })
    }
}

fn is_disabled(key: &Key) -> bool {
    key.policy.as_ref().is_some_and(|policy| policy.disabled.is_some())
}
