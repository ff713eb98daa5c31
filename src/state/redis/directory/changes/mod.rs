//! Changes to the directory.
//!
//! - Each is checked against what it was made from and written whole, by one script in the organization's slot. Names
//!   of organizations and digests of keys are unique over all slots: they are claimed before the record is written, and
//!   given back when it is not; a claim without a record that is older than [`CLAIM`] is anybody's.
//! - Each can be made twice without harm, so one whose answer was lost is tried again, for a while.

use std::time::{Duration, Instant};

use redis::{FromRedisValue as _, cmd};

use crate::clock::{self, Micros};
use crate::identity::{OrgId, Permission, UserId};
use crate::key::{KeyDigest, KeyId, OrgTag};
use crate::quota::Quota;
use crate::state::bucket::Bucket;
use crate::state::redis::Redis;
use crate::state::redis::client::CommandError;
use crate::state::redis::decide::decide_codec::chosen;
use crate::state::redis::directory::revocations::Revocation;
use crate::state::redis::record_names;
use crate::state::{Change, ChangeError, Key, Org, StorageError, Unavailable, User};

mod transaction;
pub(in crate::state::redis) mod keys;
pub(in crate::state::redis) mod orgs;
pub(in crate::state::redis) mod users;
mod sessions;

pub(in crate::state::redis) use transaction::{CommitResult, Transaction, version};

/// How old a claim without a record must be to be anybody's: longer than any change is tried for.
pub(in crate::state::redis) const CLAIM: Duration = Duration::from_secs(60);
/// How long a change is tried for when it fails without a verdict, beyond the time that replicas may take.
pub(in crate::state::redis) const PATIENCE: Duration = Duration::from_secs(3);
/// How long to wait between two tries.
const PAUSE: Duration = Duration::from_millis(100);
/// How often a change begins anew because somebody changed the same meanwhile.
const TRIES: usize = 100;

/// Why a step of a change did not succeed.
#[derive(Debug, thiserror::Error)]
pub(in crate::state::redis) enum CommitError {
    /// For good.
    #[error(transparent)]
    Final(#[from] ChangeError),
    /// Somebody changed the same meanwhile.
    #[error("somebody changed the same meanwhile")]
    Conflict,
    /// Without a verdict.
    #[error(transparent)]
    Command(#[from] CommandError),
    #[error("no randomness")]
    Randomness(#[from] getrandom::Error),
}

impl Redis {
    /// Makes one change durable and effective. See [`crate::state::State::change`].
    ///
    /// # Errors
    /// [`ChangeError`]. After `Unavailable` it may have been made; after `NotReplicated` it was.
    pub async fn change(&self, change: Change) -> Result<(), ChangeError> {
        let begun = Instant::now();
        let (mut conflicts, mut again) = (0, false);
        // The longest change writes in three places, one after the other.
        let patience = PATIENCE + 3 * self.shared.settings.durability.timeout;
        loop {
            match tokio::time::timeout(patience, self.make(&change, again)).await {
                Ok(Ok(replicas)) => return self.replicated(replicas),
                Ok(Err(CommitError::Final(error))) => return Err(error),
                Ok(Err(CommitError::Conflict)) if conflicts < TRIES => conflicts += 1,
                Ok(Err(CommitError::Command(failure))) if begun.elapsed() > patience => {
                    tracing::warn!(%failure, "a change could not be made");
                    return Err(ChangeError::Unavailable(StorageError::Redis(failure.into())));
                }
                Ok(Err(CommitError::Command(_))) => {
                    again = true;
                    tokio::time::sleep(PAUSE).await;
                }
                Ok(Err(CommitError::Conflict | CommitError::Randomness(_))) => {
                    return Err(ChangeError::Unavailable(StorageError::Redis(Unavailable::Overloaded)));
                }
                Err(_) => return Err(ChangeError::Unavailable(StorageError::Redis(Unavailable::TimedOut))),
            }
        }
    }

    /// Whether as many replicas have it as are configured.
    pub(in crate::state::redis) fn replicated(&self, reached: u32) -> Result<(), ChangeError> {
        let wanted = self.shared.settings.durability.replicas;
        if reached < wanted { Err(ChangeError::NotReplicated { wanted, reached }) } else { Ok(()) }
    }

    /// Makes a change, perhaps again, and says how many replicas have it.
    async fn make(&self, change: &Change, again: bool) -> Result<u32, CommitError> {
        match change {
            Change::CreateOrg(org) => self.create_org(org).await,
            Change::SuspendOrg { org, suspended } => self.suspend_org(*org, *suspended).await,
            Change::LimitOrg { org, concurrent } => self.limit_org(*org, *concurrent).await,
            Change::CreateUser(user) => self.create_user(user).await,
            Change::PermitUser { org, user, permissions } => self.permit_user(*org, *user, permissions).await,
            Change::RemoveUser { org, user, at } => self.remove_user(*org, *user, *at, again).await,
            Change::CreateKey { key, digest } => self.create_key(key, digest).await,
            Change::RevokeKey { key, at } => self.revoke_key(*key, *at).await,
            Change::RotateKey { key, digest, at, previous_until } => {
                self.rotate_key(*key, digest, *at, *previous_until).await
            }
            Change::LimitKey { key, quota } => self.limit_key(*key, *quota).await,
            Change::CreateSession { session, digest } => self.create_session(session, digest, again).await,
            Change::ChooseOrg { session, org } => self.choose_org(*session, *org).await,
            Change::EndSession { session } => self.end_session(*session).await,
            Change::PutTicket { digest, content, expires } => self.put_ticket(digest, content, *expires).await,
        }
    }

    /// A transaction at this time.
    pub(in crate::state::redis) fn transaction(&self) -> Transaction {
        Transaction::new(chosen(&self.shared.settings, clock::now()))
    }

    /// A field of a hash that is no record.
    pub(in crate::state::redis) async fn read_field(
        &self,
        slot: u16,
        name: &str,
        field: &str,
    ) -> Result<Option<String>, CommandError> {
        let mut get = cmd("HGET");
        get.arg(name).arg(field);
        let value = self.servers.send(slot, &get).await?;
        Option::<String>::from_redis_value(value).map_err(|_| CommandError::UnexpectedReply)
    }

    /// The tag of an organization.
    pub(in crate::state::redis) async fn find_tag(&self, org: OrgId) -> Result<Option<OrgTag>, CommandError> {
        let tag =
            self.read_field(record_names::orgs_slot(), &self.shared.record_names.tags(), &org.to_string()).await?;
        tag.map(|tag| tag.parse().map_err(|_| CommandError::UnexpectedReply)).transpose()
    }

    async fn require_tag(&self, org: OrgId) -> Result<OrgTag, CommitError> {
        Ok(self.find_tag(org).await?.ok_or(ChangeError::NoOrg(org))?)
    }
}

/// Permissions as they are stored.
pub(in crate::state::redis) fn joined(permissions: &[Permission]) -> String {
    permissions.iter().map(Permission::as_str).collect::<Vec<_>>().join(",")
}
