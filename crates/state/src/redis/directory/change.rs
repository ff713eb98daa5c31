//! One change to the directory, with retries.

use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use tokio::time::{sleep, timeout};

use super::change_steps::{ChangeSteps, ChangeWrite};
use super::commit_error::CommitError;
use super::keys::{Keys, Origin, Rotation};
use super::management_tokens::ManagementTokens;
use super::orgs::Orgs;
use super::revocation_log::LogWriter;
use super::sessions::Sessions;
use super::tickets::Tickets;
use super::transactions::Transactions;
use super::users::Users;
use crate::{Change, ChangeError, StorageError, Unavailable};

/// Changes, over the transactions of one thread.
#[derive(Clone, Copy)]
pub(crate) struct Changes<'a>(pub(crate) &'a Transactions);

impl Changes<'_> {
    /// Makes one change durable and effective. See [`crate::State::change`].
    ///
    /// # Errors
    /// [`ChangeError`]. After `Unavailable` it may have been made; after `NotReplicated` it was.
    pub(crate) async fn change(self, change: Change) -> Result<(), ChangeError> {
        let durability = self.0.shared.settings.durability;
        let mut steps = ChangeSteps::begin(durability, Instant::now());
        loop {
            let attempt = timeout(steps.limit, self.change_once(&change, steps.is_retry)).await;
            let Ok(result) = attempt else {
                return Err(ChangeError::Unavailable(StorageError::Redis(Unavailable::TimedOut)));
            };
            match steps.after_attempt(result, durability, Instant::now()) {
                ControlFlow::Break(result) => return result,
                ControlFlow::Continue(Duration::ZERO) => {}
                ControlFlow::Continue(pause) => sleep(pause).await,
            }
        }
    }

    /// Makes a change once, and logs what it has revoked. Returns the number of replicas that have both.
    async fn change_once(self, change: &Change, is_retry: bool) -> Result<u32, CommitError> {
        let mut locator = LogWriter(self.0).locator(change).await?;
        let mut replicas = u32::MAX;
        for write in ChangeWrite::ORDER {
            let reached = match write {
                ChangeWrite::Records => Some(self.write(change, Origin::default(), is_retry).await?),
                ChangeWrite::Log => LogWriter(self.0).append(change, locator.take()).await?,
            };
            replicas = reached.map_or(replicas, |reached| reached.min(replicas));
        }
        Ok(replicas)
    }

    /// Writes a change once: for a person within the bounds, for the operator without. Returns the number of replicas
    /// that have it.
    async fn write(self, change: &Change, origin: Origin<'_>, is_retry: bool) -> Result<u32, CommitError> {
        let orgs = Orgs(self.0);
        let users = Users(self.0);
        let keys = Keys(self.0);
        let sessions = Sessions(self.0);
        match change {
            Change::CreateOrg(org) => orgs.create(org).await,
            Change::UpdateOrg { org, patch } => orgs.update(*org, patch).await,
            Change::CreateUser(user) => users.create(user).await,
            Change::UpdateUser { org, user, patch } => users.update(*org, *user, patch).await,
            Change::WithdrawUser { org, user, at } => users.withdraw(*org, *user, *at).await,
            Change::RemoveUser { org, user, at } => users.remove(*org, *user, *at, is_retry).await,
            Change::CreateKey { key, digest } => keys.create(key, digest, origin).await,
            Change::RotateKey { key, digest, at, previous_until, last } => {
                let rotation = Rotation { digest, at: *at, previous_until: *previous_until, last: *last };
                keys.rotate(*key, rotation, origin).await
            }
            Change::ByPerson { person, change } => {
                Box::pin(self.write(change, Origin { person: Some(*person), ..origin }, is_retry)).await
            }
            Change::ByActor { actor, change } => {
                Box::pin(self.write(change, Origin { actor: Some(actor), ..origin }, is_retry)).await
            }
            Change::RevokeKey { key, at } => keys.revoke(*key, *at, origin.actor).await,
            Change::UpdateKey { key, patch } => keys.update(*key, patch).await,
            Change::CreateSession { session, digest } => sessions.create(session, digest, is_retry).await,
            Change::ChooseOrg { session, org } => sessions.choose_org(*session, *org).await,
            Change::EndSession { session } => sessions.end(*session).await,
            Change::EndMembership { session, org } => sessions.end_membership(*session, *org).await,
            Change::CreateToken(token) => ManagementTokens(self.0).create(token, is_retry).await,
            Change::RevokeToken { token, at } => ManagementTokens(self.0).revoke(*token, *at).await,
            Change::PutTicket { digest, content, expires, .. } => Tickets(self.0).put(digest, content, *expires).await,
        }
    }
}
