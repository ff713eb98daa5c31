//! Announcements of budgets of which 80 % are spent: a record `quota.near` and a log line, once for each subject and
//! period over all gateways.

use std::collections::VecDeque;
use std::time::Duration;

use tokio::time::{Instant, sleep, sleep_until};
use uuid::Uuid;

use super::announcement::{Announcement, CLAIM, QUOTA_NEAR};
use super::audited_change::Target;
use super::{Management, ManagementError};
use domain::budget::BudgetSubject;
use state::NearBudget;

/// Pause before an announcement is tried again that the state or the journal did not take.
const PAUSE: Duration = Duration::from_secs(60);
/// Budgets that wait for a second look at a time.
const CLAIMED: usize = 1000;

/// Announces the budgets that requests find nearly spent, for as long as the task lives. One that another gateway has
/// claimed is looked at once more: that gateway may be gone before the record.
pub async fn announce_near_budgets(management: &Management) {
    let mut claimed = VecDeque::new();
    loop {
        let again = claimed.front().map(|(at, _)| *at);
        let near = tokio::select! {
            near = management.state.next_near_budget() => near,
            () = sleep_until(again.unwrap_or_else(Instant::now)), if again.is_some() => {
                if let Some((_, near)) = claimed.pop_front() {
                    announce_until_answered(management, &near).await;
                }
                continue;
            }
        };
        if !announce_until_answered(management, &near).await && claimed.len() < CLAIMED {
            claimed.push_back((Instant::now() + 2 * CLAIM, near));
        }
    }
}

/// Announces a budget as soon as the state and the journal take it. Returns whether this gateway has done so.
async fn announce_until_answered(management: &Management, near: &NearBudget) -> bool {
    // The same in each attempt: one whose answer was lost may have put the ticket.
    let mark = Uuid::now_v7();
    loop {
        match announce(management, near, mark).await {
            Ok(is_announced) => return is_announced,
            Err(error) => {
                let (subject, error) = (near.subject, error.in_full());
                tracing::warn!(%subject, error, "cannot record that a budget is nearly spent; trying again");
            }
        }
        sleep(PAUSE).await;
    }
}

/// Announces a budget, unless it was announced in this period, or its key is gone.
async fn announce(management: &Management, near: &NearBudget, mark: Uuid) -> Result<bool, ManagementError> {
    let Some(target) = target_of(management, near).await? else { return Ok(false) };
    let (subject, status) = (near.subject, near.status);
    let (used, units, until) = (status.used, status.units, status.end);
    let path = format!("{QUOTA_NEAR}/{used}/{units}/{}", status.start);
    let announcement = Announcement { action: QUOTA_NEAR, path, target, until };
    let is_announced = announcement.record(management, mark, management.now()).await?;
    if is_announced {
        tracing::warn!(%subject, used, units, %until, "80 % of a budget is spent");
    }
    Ok(is_announced)
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
