//! The directory of one thread: its objects over one [`Transactions`], and one change with retries.

use std::time::{Duration, Instant};

use redis::{FromRedisValue as _, cmd};
use tokio::time::{sleep, timeout};

use super::commit_error::CommitError;
use super::key_list::KeyList;
use super::keys::{Keys, Rotation};
use super::orgs::Orgs;
use super::revocation_log::LogWriter;
use super::sessions::Sessions;
use super::tickets::Tickets;
use super::transactions::{CHANGE_TIMEOUT, Transactions};
use super::user_index::UserIndex;
use super::users::Users;
use crate::cursor_secret::CursorSecret;
use crate::redis::record_names::orgs_slot;
use crate::{Change, ChangeError, StorageError, Unavailable};
use domain::identity::UserId;
use redis_client::CommandError;

/// Pause before a change is repeated after a failed command.
const PAUSE: Duration = Duration::from_millis(100);
/// Times that a change begins anew because of conflicts.
const MAX_CONFLICTS: usize = 100;
/// The longest change commits in four places, one after the other, and each may wait for replicas.
const COMMITS: u32 = 4;

/// The directory.
pub(crate) struct Directory {
    pub(crate) transactions: Transactions,
}

impl Directory {
    pub(crate) fn orgs(&self) -> Orgs<'_> {
        Orgs(&self.transactions)
    }

    pub(crate) fn users(&self) -> Users<'_> {
        Users(&self.transactions)
    }

    pub(crate) fn user_index(&self) -> UserIndex<'_> {
        UserIndex(&self.transactions)
    }

    pub(crate) fn keys(&self) -> Keys<'_> {
        Keys(&self.transactions)
    }

    pub(crate) fn key_list(&self) -> KeyList<'_> {
        KeyList(&self.transactions)
    }

    pub(crate) fn sessions(&self) -> Sessions<'_> {
        Sessions(&self.transactions)
    }

    pub(crate) fn tickets(&self) -> Tickets<'_> {
        Tickets(&self.transactions)
    }

    /// Makes one change durable and effective. See [`crate::State::change`].
    ///
    /// # Errors
    /// [`ChangeError`]. After `Unavailable` it may have been made; after `NotReplicated` it was.
    pub(crate) async fn change(&self, change: Change) -> Result<(), ChangeError> {
        let begun = Instant::now();
        let (mut conflicts, mut is_retry) = (0, false);
        let limit = CHANGE_TIMEOUT + COMMITS * self.transactions.shared.settings.durability.timeout;
        loop {
            match timeout(limit, self.change_once(&change, is_retry)).await {
                Ok(Ok(replicas)) => return self.transactions.check_replicated(replicas),
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
        let locator = LogWriter(&self.transactions).locator(change).await?;
        let written = self.write_change(change, is_retry).await?;
        // After the change, so that a gateway that reads the entry finds the credential revoked.
        let logged = LogWriter(&self.transactions).append(change, locator).await?;
        Ok(logged.map_or(written, |logged| logged.min(written)))
    }

    /// Writes a change once. Returns the number of replicas that have it.
    async fn write_change(&self, change: &Change, is_retry: bool) -> Result<u32, CommitError> {
        match change {
            Change::CreateOrg(org) => self.orgs().create(org).await,
            Change::SuspendOrg { org, suspended } => self.orgs().suspend(*org, *suspended).await,
            Change::LimitOrg { org, concurrent } => self.orgs().limit(*org, *concurrent).await,
            Change::CreateUser(user) => self.users().create(user).await,
            Change::PermitUser { org, user, permissions, vouched_by } => {
                self.users().permit(*org, *user, permissions, vouched_by.as_ref()).await
            }
            Change::WithdrawUser { org, user, at } => self.users().withdraw(*org, *user, *at).await,
            Change::RemoveUser { org, user, at } => self.users().remove(*org, *user, *at, is_retry).await,
            Change::CreateKey { .. } | Change::RotateKey { .. } => self.make_key(change, None).await,
            Change::ByPerson { person, change } => self.make_key(change, Some(*person)).await,
            Change::RevokeKey { key, at } => self.keys().revoke(*key, *at).await,
            Change::LimitKey { key, quota } => self.keys().limit(*key, *quota).await,
            Change::CreateSession { session, digest } => self.sessions().create(session, digest, is_retry).await,
            Change::ChooseOrg { session, org } => self.sessions().choose_org(*session, *org).await,
            Change::EndSession { session } => self.sessions().end(*session).await,
            Change::EndMembership { session, org } => self.sessions().end_membership(*session, *org).await,
            Change::PutTicket { digest, content, expires, source: _ } => {
                self.tickets().put(digest, content, *expires).await
            }
        }
    }

    /// Creates or rotates a key: for a person within the bounds, for the operator without.
    async fn make_key(&self, change: &Change, person: Option<UserId>) -> Result<u32, CommitError> {
        match change {
            Change::CreateKey { key, digest } => self.keys().create(key, digest, person).await,
            Change::RotateKey { key, digest, at, previous_until, last } => {
                let rotation = Rotation { digest, at: *at, previous_until: *previous_until, last: *last };
                self.keys().rotate(*key, rotation, person).await
            }
            // People are bound in no other change.
            other => Box::pin(self.change_once(other, false)).await,
        }
    }

    /// The secret that the cursors of lists are sealed with: read once. The first gateway that needs it stores a fresh
    /// one.
    pub(crate) async fn read_cursor_secret(&self) -> Result<CursorSecret, CommandError> {
        let read = async {
            let fresh = CursorSecret::generate().map_err(|error| {
                tracing::error!(%error, "the operating system gave no randomness for the secret of cursors");
                CommandError::UnexpectedReply
            })?;
            let name = self.transactions.shared.names.cursor_secret();
            let mut set = cmd("SET");
            // Kept as it is when there is one: all gateways have to agree.
            set.arg(&name).arg(fresh.as_bytes()).arg("NX");
            self.transactions.client.send(orgs_slot(), &set).await?;
            let mut get = cmd("GET");
            let bytes = self.transactions.client.send(orgs_slot(), get.arg(&name)).await?;
            let bytes = Vec::<u8>::from_redis_value(bytes).map_err(|_| CommandError::UnexpectedReply)?;
            let bytes = <[u8; 32]>::try_from(bytes).map_err(|_| CommandError::UnexpectedReply)?;
            Ok(CursorSecret::from_bytes(bytes))
        };
        self.transactions.shared.cursor_secret.get_or_try_init(|| read).await.cloned()
    }
}
