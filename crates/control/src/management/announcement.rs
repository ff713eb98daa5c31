//! Announcements: what one of all gateways records once, by the actor `gateway`, because people want to know it in
//! time.
//!
//! - Each is claimed by a ticket, for [`CLAIM`] until its record is written, and then for as long as it is of interest.
//!   So a gateway that is killed before the record leaves it to the next look; one that is killed right behind it may
//!   have it recorded a second time.

use std::time::{Duration, Instant};

use uuid::Uuid;

use super::actor::AuditActor;
use super::audited_change::{Target, begin_change, use_end};
use super::{Actor, ClientInfo, Management, ManagementError};
use domain::clock::Micros;
use state::{Change, ChangeError};

/// Actions of all announcements.
pub const ANNOUNCED: [&str; 5] = [QUOTA_NEAR, KEY_EXPIRING, KEY_UNUSED, KEY_LEAKED, TOKEN_EXPIRING];
pub(super) const QUOTA_NEAR: &str = "quota.near";
pub(super) const KEY_EXPIRING: &str = "key.expiring";
pub(super) const KEY_UNUSED: &str = "key.unused";
pub(super) const KEY_LEAKED: &str = "key.leaked";
pub(super) const TOKEN_EXPIRING: &str = "token.expiring";
/// Time that a gateway has for the record. A process that was killed starts within it, or another gateway looks later.
const CLAIM: Duration = Duration::from_secs(600);

/// Something to announce.
pub(super) struct Announcement<'a> {
    /// Action of the record.
    pub(super) action: &'a str,
    /// Subject and instant: what all gateways call the same. It is announced once.
    pub(super) about: String,
    /// Detail of the record's path, behind the action.
    pub(super) detail: String,
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
        let claim = |until| Change::claim(&format!("{} {}", self.action, self.about), mark.as_bytes(), until);
        match management.state.change(claim(now.after(CLAIM).min(self.until))).await {
            // Another gateway announces it, or has: also the process that takes this one's place.
            Err(ChangeError::Taken(_) | ChangeError::HandedOver | ChangeError::Closed) => return Ok(false),
            Ok(()) | Err(ChangeError::NotReplicated { .. }) => {}
            Err(error) => return Err(error.into()),
        }
        let started = Instant::now();
        let path = format!("{}/{}", self.action, self.detail);
        let by = AuditActor { actor: &Actor::gateway(ClientInfo::default()), now };
        let entry = begin_change(management, self.action, &path, self.target, false, by).await?;
        entry.close_change(use_end(&Ok(()), started)).await;
        // An error would have it recorded again at once; the next look may.
        if let Err(error) = management.state.change(claim(self.until)).await {
            tracing::debug!(%error, action = self.action, "an announcement may be recorded again");
        }
        Ok(true)
    }
}
