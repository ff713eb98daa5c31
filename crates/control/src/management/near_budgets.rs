//! Announcements of budgets of which 80 % are spent: a record `quota.near` and a log line, once for each subject and
//! period over all gateways.
//!
//! - The gateway that puts the ticket of the announcement records it. Killed in between, it leaves no record.

use std::time::{Duration, Instant};

use tokio::time::sleep;
use uuid::Uuid;

use super::actor::AuditActor;
use super::audited_change::{Target, begin_change, use_end};
use super::{Actor, Management, ManagementError, UnixUser};
use domain::budget::BudgetSubject;
use state::{ChangeError, NearBudget};

/// Action of the record.
pub(super) const ACTION: &str = "quota.near";
const GATEWAY: &Actor = &Actor::operator(UnixUser::GATEWAY);
/// Pause before an announcement is tried again that the state or the journal did not take.
const PAUSE: Duration = Duration::from_secs(60);

/// Announces the budgets that requests find nearly spent, for as long as the task lives.
pub async fn announce_near_budgets(management: &Management) {
    loop {
        let near = management.state.next_near_budget().await;
        // The same in each attempt: one whose answer was lost may have put the ticket.
        let mark = Uuid::now_v7();
        while let Err(error) = announce(management, &near, mark).await {
            let (subject, error) = (near.subject, error.in_full());
            tracing::warn!(%subject, error, "cannot record that a budget is nearly spent; trying again");
            sleep(PAUSE).await;
        }
    }
}

/// Announces a budget, unless it was announced in this period, or its key is gone.
async fn announce(management: &Management, near: &NearBudget, mark: Uuid) -> Result<(), ManagementError> {
    let Some(target) = target_of(management, near).await? else { return Ok(()) };
    match management.state.change(near.claim(mark.as_bytes())).await {
        // Another gateway announces it, or has: also the process that takes this one's place.
        Err(ChangeError::Taken(_) | ChangeError::HandedOver | ChangeError::Closed) => return Ok(()),
        Ok(()) | Err(ChangeError::NotReplicated { .. }) => {}
        Err(error) => return Err(error.into()),
    }
    let (subject, status, started) = (near.subject, near.status, Instant::now());
    let path = format!("{ACTION}/{}/{}", status.used, status.units);
    let by = AuditActor { actor: GATEWAY, now: management.now() };
    let entry = begin_change(management, ACTION, &path, target, false, by).await?;
    entry.close_change(use_end(&Ok(()), started)).await;
    let (used, units, until) = (status.used, status.units, status.end);
    tracing::warn!(%subject, used, units, %until, "80 % of a budget is spent");
    Ok(())
}

/// The subject, as the record names it.
async fn target_of(management: &Management, near: &NearBudget) -> Result<Option<Target>, ManagementError> {
    let of = |user| Some(Target { org: Some(near.org), user, key: None });
    Ok(match near.subject {
        BudgetSubject::Org(_) => of(None),
        BudgetSubject::User(user) => of(Some(user)),
        BudgetSubject::Key(key) => management.state.key(key).await?.as_ref().map(Target::of_key),
    })
}
