//! Announcements: what one of all gateways records once, by the actor `gateway`, because people want to know it in
//! time.
//!
//! ```text
//! claim, for ten minutes -> record, left open -> claim, for good -> completed
//! ```
//!
//! - The mark of a claim is the id of the record. A gateway that is killed before the record leaves the announcement to
//!   the next look. One that is killed behind it finds the record open at its next start, and claims it for good: the
//!   record is completed, or aborted when another gateway has announced it meanwhile. Of all records one is completed.
//! - Without a next start, the record stays open, and the announcement is another gateway's.

use std::mem::ManuallyDrop;
use std::time::{Duration, Instant};

use serde_json::json;
use tokio::time::sleep;
use uuid::Uuid;

use super::actor::AuditActor;
use super::audited_change::{Target, use_end, use_opening};
use super::{Actor, Management, ManagementError, UnixUser};
use domain::clock::Micros;
use journal::audit::{ChangeUse, Outcome, Record, Use, UseEnd};
use state::{Change, ChangeError};

/// Actions of all announcements.
pub const ANNOUNCED: [&str; 6] = [QUOTA_NEAR, KEY_EXPIRING, KEY_UNUSED, KEY_LEAKED, TOKEN_EXPIRING, TOKEN_LEAKED];
pub(super) const QUOTA_NEAR: &str = "quota.near";
pub(super) const KEY_EXPIRING: &str = "key.expiring";
pub(super) const KEY_UNUSED: &str = "key.unused";
pub(super) const KEY_LEAKED: &str = "key.leaked";
pub(super) const TOKEN_EXPIRING: &str = "token.expiring";
pub(super) const TOKEN_LEAKED: &str = "token.leaked";
const GATEWAY: &Actor = &Actor::operator(UnixUser::GATEWAY);
/// Time that a gateway has for the record, which takes it milliseconds. Others look later.
pub(super) const CLAIM: Duration = Duration::from_secs(600);
/// Pause before a claim is made again that the state has not answered.
const PAUSE: Duration = Duration::from_secs(1);
/// Time that a claim for good outlives the end: a gateway that comes back by then learns what others have announced.
const KEPT: Duration = Duration::from_secs(7 * 24 * 3600);
/// Time for which a report of a leak is known.
pub(super) const LEAK_REMEMBERED: Duration = Duration::from_secs(400 * 24 * 3600);
/// The longest time from the instant in a path to the end: that of a period.
const PERIOD: Duration = Duration::from_secs(31 * 24 * 3600);

/// Something to announce.
pub(super) struct Announcement<'a> {
    /// Action of the record.
    pub(super) action: &'a str,
    /// Path of the record: the action, two numbers of a budget, and what all gateways call the same, with an instant at
    /// its end. That is announced once for each target.
    pub(super) path: String,
    /// Target of the record.
    pub(super) target: Target,
    /// Time from which it is of no interest.
    pub(super) until: Micros,
}

impl Announcement<'_> {
    /// Records it at `now`, a time of the state, unless it was announced. Returns whether this gateway has done so.
    /// `mark` is the same in each attempt: one whose answer was lost may have put the ticket.
    ///
    /// # Errors
    /// The state or the journal is unavailable.
    pub(super) async fn record(
        &self,
        management: &Management,
        mark: Uuid,
        now: Micros,
    ) -> Result<bool, ManagementError> {
        let Self { action, ref path, target, until } = *self;
        match claim(management, (action, path, target), mark, now.after(CLAIM).min(until)).await {
            // Another gateway announces it, or has: also the process that takes this one's place.
            Ok(false) | Err(ChangeError::HandedOver | ChangeError::Closed) => return Ok(false),
            claimed => claimed?,
        };
        let started = Instant::now();
        let by = AuditActor { actor: GATEWAY, now };
        let (opening, actor) = (Use { id: mark, ..use_opening(action, path, target, by) }, GATEWAY.audit_name(None));
        let change = ChangeUse { opening, actor: &actor, subject: target.user, token_id: None };
        let entry = management.journal.begin_change(&change, false).await?;
        if !entry.is_recorded() {
            return Ok(false);
        }
        // Dropped on the way, as by a gateway that stops, it is left open, too.
        let entry = ManuallyDrop::new(entry);
        let is_first = loop {
            match claim(management, (action, path, target), mark, until.after(KEPT)).await {
                Ok(is_first) => break is_first,
                // The record is left open to the process that takes this one's place.
                Err(ChangeError::HandedOver | ChangeError::Closed) => return Ok(true),
                // Without an answer it may be claimed for good: the outcome is not known yet.
                Err(error) => tracing::debug!(%error, action, "an announcement waits for the state"),
            }
            sleep(PAUSE).await;
        };
        let end = use_end(&Ok(()), started);
        let end = if is_first { end } else { UseEnd { outcome: Outcome::Aborted, status: None, ..end } };
        ManuallyDrop::into_inner(entry).close_change(end).await;
        Ok(is_first)
    }
}

/// Claims for good what a process that is gone has recorded and left open. Returns whether it is the only record; none
/// when the path is no longer understood.
///
/// # Errors
/// The state is unavailable.
pub(super) async fn claim_left(management: &Management, record: &Record) -> Result<Option<bool>, ChangeError> {
    let Record { org_id: org, subject: user, key_id: key, .. } = *record;
    let instant = || record.path.rsplit('/').next()?.parse::<Micros>().ok();
    let until = match &*record.action {
        KEY_LEAKED | TOKEN_LEAKED => Some(record.time.after(LEAK_REMEMBERED)),
        _ => instant().map(|instant| instant.after(PERIOD + KEPT)),
    };
    let Some(until) = until else { return Ok(None) };
    let about = (&*record.action, &*record.path, Target { org, user, key });
    claim(management, about, record.id, until).await.map(Some)
}

/// Claims an announcement until a time, or extends the claim with the same mark. Returns false when another gateway has
/// it.
async fn claim(
    management: &Management,
    (action, path, Target { org, user, key }): (&str, &str, Target),
    mark: Uuid,
    until: Micros,
) -> Result<bool, ChangeError> {
    // The numbers of a budget: gateways see different ones.
    let same = path.splitn(if action == QUOTA_NEAR { 4 } else { 2 }, '/').last();
    let about = json!((action, org, user, key, same)).to_string();
    match management.state.change(Change::claim(&about, mark.as_bytes(), until)).await {
        Ok(()) | Err(ChangeError::NotReplicated { .. }) => Ok(true),
        Err(ChangeError::Taken(_)) => Ok(false),
        Err(error) => Err(error),
    }
}
