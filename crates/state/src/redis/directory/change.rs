//! One change to the directory, with retries.

use std::time::{Duration, Instant};

use tokio::time::{sleep, timeout};

use super::commit_error::CommitError;
use super::keys::{Keys, Rotation};
use super::orgs::Orgs;
use super::revocation_log::LogWriter;
use super::sessions::Sessions;
use super::tickets::Tickets;
use super::transactions::{CHANGE_TIMEOUT, Transactions};
use super::users::Users;
use crate::{Change, ChangeError, StorageError, Unavailable};
use domain::identity::UserId;

/// Pause before a change is repeated after a failed command.
const PAUSE: Duration = Duration::from_millis(100);
/// Times that a change begins anew because of conflicts.
const MAX_CONFLICTS: usize = 100;
/// The longest change commits in four places, one after the other, and each may wait for replicas.
const COMMITS: u32 = 4;

/// Changes, over the transactions of one thread.
#[derive(Clone, Copy)]
pub(crate) struct Changes<'a>(pub(crate) &'a Transactions);

impl Changes<'_> {
    /// Makes one change durable and effective. See [`crate::State::change`].
    ///
    /// # Errors
    /// [`ChangeError`]. After `Unavailable` it may have been made; after `NotReplicated` it was.
    pub(crate) async fn change(self, change: Change) -> Result<(), ChangeError> {
        let begun = Instant::now();
        let mut conflicts = 0;
        let mut is_retry = false;
        let limit = CHANGE_TIMEOUT + COMMITS * self.0.shared.settings.durability.timeout;
        loop {
            match timeout(limit, self.change_once(&change, is_retry)).await {
                Ok(Ok(replicas)) => return self.0.check_replicated(replicas),
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
    async fn change_once(self, change: &Change, is_retry: bool) -> Result<u32, CommitError> {
        let locator = LogWriter(self.0).locator(change).await?;
        let written = self.write(change, None, is_retry).await?;
        // After the change, so that a gateway that reads the entry finds the credential revoked.
        let logged = LogWriter(self.0).append(change, locator).await?;
        Ok(logged.map_or(written, |logged| logged.min(written)))
    }

    /// Writes a change once: for a person within the bounds, for the operator without. Returns the number of replicas
    /// that have it.
    async fn write(self, change: &Change, person: Option<UserId>, is_retry: bool) -> Result<u32, CommitError> {
        let orgs = Orgs(self.0);
        let users = Users(self.0);
        let keys = Keys(self.0);
        let sessions = Sessions(self.0);
        match change {
            Change::CreateOrg(org) => orgs.create(org).await,
            Change::SuspendOrg { org, suspended } => orgs.suspend(*org, *suspended).await,
            Change::LimitOrg { org, concurrent } => orgs.limit(*org, *concurrent).await,
            Change::CreateUser(user) => users.create(user).await,
            Change::PermitUser { org, user, permissions, vouched_by } => {
                users.permit(*org, *user, permissions, vouched_by.as_ref()).await
            }
            Change::WithdrawUser { org, user, at } => users.withdraw(*org, *user, *at).await,
            Change::RemoveUser { org, user, at } => users.remove(*org, *user, *at, is_retry).await,
            Change::CreateKey { key, digest } => keys.create(key, digest, person).await,
            Change::RotateKey { key, digest, at, previous_until, last } => {
                let rotation = Rotation { digest, at: *at, previous_until: *previous_until, last: *last };
                keys.rotate(*key, rotation, person).await
            }
            Change::ByPerson { person, change } => Box::pin(self.write(change, Some(*person), is_retry)).await,
            Change::RevokeKey { key, at } => keys.revoke(*key, *at).await,
            Change::LimitKey { key, quota } => keys.limit(*key, *quota).await,
            Change::CreateSession { session, digest } => sessions.create(session, digest, is_retry).await,
            Change::ChooseOrg { session, org } => sessions.choose_org(*session, *org).await,
            Change::EndSession { session } => sessions.end(*session).await,
            Change::EndMembership { session, org } => sessions.end_membership(*session, *org).await,
            Change::PutTicket { digest, content, expires, source: _ } => {
                Tickets(self.0).put(digest, content, *expires).await
            }
        }
    }
}
