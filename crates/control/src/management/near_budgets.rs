//! Announcements of budgets of which 80 % are spent: a record `quota.near` and a log line, once for each subject and
//! period over all gateways.

use std::time::Duration;

use tokio::time::sleep;
use uuid::Uuid;

use super::announcement::{Announcement, QUOTA_NEAR};
use super::audited_change::Target;
use super::{Management, ManagementError};
use domain::budget::BudgetSubject;
use state::NearBudget;

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
    let (subject, status) = (near.subject, near.status);
    let (used, units, until) = (status.used, status.units, status.end);
    let about = format!("{subject} {}", status.start.0);
    let detail = format!("{used}/{units}");
    let announcement = Announcement { action: QUOTA_NEAR, about, detail, target, until };
    if announcement.record(management, mark, management.now()).await? {
        tracing::warn!(%subject, used, units, %until, "80 % of a budget is spent");
    }
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
