//! One change, with retries.

use std::time::{Duration, Instant};

use tokio::time::{sleep, timeout};

use super::commit_error::CommitError;
use super::keys::Rotation;
use super::records::Directory;
use crate::{Change, ChangeError, StorageError, Unavailable};
use domain::identity::UserId;

/// Time for which a change is repeated while commands fail, beyond the time-out for replicas. Longer than a failover of
/// a Redis that is set up for fast ones, and short enough for an operator to wait.
pub(super) const CHANGE_TIMEOUT: Duration = Duration::from_secs(3);
/// Pause before a change is repeated after a failed command.
const PAUSE: Duration = Duration::from_millis(100);
/// Times that a change begins anew because of conflicts.
const MAX_CONFLICTS: usize = 100;
/// The longest change commits in four places, one after the other, and each may wait for replicas.
const COMMITS: u32 = 4;

impl Directory {
    /// Makes one change durable and effective. See [`crate::State::change`].
    ///
    /// # Errors
    /// [`ChangeError`]. After `Unavailable` it may have been made; after `NotReplicated` it was.
    pub(crate) async fn change(&self, change: Change) -> Result<(), ChangeError> {
        let begun = Instant::now();
        let (mut conflicts, mut is_retry) = (0, false);
        let limit = CHANGE_TIMEOUT + COMMITS * self.shared.settings.durability.timeout;
        loop {
            match timeout(limit, self.change_once(&change, is_retry)).await {
                Ok(Ok(replicas)) => return self.check_replicated(replicas),
                Ok(Err(CommitError::Final(error))) => return Err(error),
                // A conflict leaves nothing behind, so what follows is not a retry of a half-made change.
                Ok(Err(CommitError::Conflict)) if conflicts < MAX_CONFLICTS => conflicts += 1,
                Ok(Err(CommitError::Command(error))) if begun.elapsed() > limit => {
                    tracing::warn!(%error, "cannot write the change to Redis; it may have been made: repeat it");
                    return Err(ChangeError::Unavailable(StorageError::Redis(error.into())));
                }
                // The command may have run: the next attempt has to recognize its own writes.
                Ok(Err(CommitError::Command(_))) => {
                    is_retry = true;
                    sleep(PAUSE).await;
                }
                Ok(Err(CommitError::Conflict | CommitError::Randomness(_))) => {
                    return Err(ChangeError::Unavailable(StorageError::Redis(Unavailable::Overloaded)));
                }
                Err(_) => return Err(ChangeError::Unavailable(StorageError::Redis(Unavailable::TimedOut))),
            }
        }
    }

    /// Makes a change once, and logs what it has revoked. Returns the number of replicas that have both.
    async fn change_once(&self, change: &Change, is_retry: bool) -> Result<u32, CommitError> {
        let locator = self.revocation_locator(change).await?;
        let written = self.write_change(change, is_retry).await?;
        // After the change, so that a gateway that reads the entry finds the credential revoked.
        let logged = self.log_revocation(change, locator).await?;
        Ok(logged.map_or(written, |logged| logged.min(written)))
    }

    /// Writes a change once. Returns the number of replicas that have it.
    async fn write_change(&self, change: &Change, is_retry: bool) -> Result<u32, CommitError> {
        match change {
            Change::CreateOrg(org) => self.create_org(org).await,
            Change::SuspendOrg { org, suspended } => self.suspend_org(*org, *suspended).await,
            Change::LimitOrg { org, concurrent } => self.limit_org(*org, *concurrent).await,
            Change::CreateUser(user) => self.create_user(user).await,
            Change::PermitUser { org, user, permissions, vouched_by } => {
                self.permit_user(*org, *user, permissions, vouched_by.as_ref()).await
            }
            Change::WithdrawUser { org, user, at } => self.withdraw_user(*org, *user, *at).await,
            Change::RemoveUser { org, user, at } => self.remove_user(*org, *user, *at, is_retry).await,
            Change::CreateKey { .. } | Change::RotateKey { .. } => self.make_key(change, None).await,
            Change::ByPerson { person, change } => self.make_key(change, Some(*person)).await,
            Change::RevokeKey { key, at } => self.revoke_key(*key, *at).await,
            Change::LimitKey { key, quota } => self.limit_key(*key, *quota).await,
            Change::CreateSession { session, digest } => self.create_session(session, digest, is_retry).await,
            Change::ChooseOrg { session, org } => self.choose_org(*session, *org).await,
            Change::EndSession { session } => self.end_session(*session).await,
            Change::EndMembership { session, org } => self.end_membership(*session, *org).await,
            Change::PutTicket { digest, content, expires, source: _ } => {
                self.put_ticket(digest, content, *expires).await
            }
        }
    }

    /// Creates or rotates a key: for a person within the bounds, for the operator without.
    async fn make_key(&self, change: &Change, person: Option<UserId>) -> Result<u32, CommitError> {
        match change {
            Change::CreateKey { key, digest } => self.create_key(key, digest, person).await,
            Change::RotateKey { key, digest, at, previous_until, last } => {
                let rotation = Rotation { digest, at: *at, previous_until: *previous_until, last: *last };
                self.rotate_key(*key, rotation, person).await
            }
            // People are bound in no other change.
            other => Box::pin(self.change_once(other, false)).await,
        }
    }
}
