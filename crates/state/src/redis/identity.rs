//! Identity of the state on Redis, in the record of the revocation log: read again twice a second, with every change,
//! after every failover, and before a key, a session or a token counts as unknown.
//!
//! - A change is acknowledged only if the state had the remembered identity before it, and has it still when the change
//!   is counted.
//! - An unknown credential is refused only if the state is the remembered one at that moment, and the organization that
//!   the credential names is not one that the list has and the data lacks (a lost shard of a Cluster).
//! - A gateway notes the number of a change that it has made itself, before it has read it.
//! - A gateway that misses its state says so in a record that expires, so that no gateway without a memory makes a new
//!   identity there.

mod listed_orgs;

use std::ops::ControlFlow;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use redis::cmd;
use tokio::time::{sleep, timeout};

use super::directory::{Check, CommitError, Record, Transaction, Transactions};
use super::slots::begin_registry;
use super::unavailable::read;
use crate::identity::{Continuity, Discontinuity, StateId, StateIdentity};
use crate::import::ImportError;
use crate::{ChangeError, StorageError, Unavailable};
use domain::clock::Micros;
use domain::key::OrgTag;
use redis_client::CommandError;

pub use listed_orgs::{ListedOrgs, Listing};

/// Interval of reading the identity.
pub const INTERVAL: Duration = Duration::from_millis(500);
/// Time for which a gateway that misses its state says so, with each reading anew.
pub const MISSED_FOR: Duration = Duration::from_secs(60);
/// Time-out of accepting the state, replicas included.
const ACCEPT_TIMEOUT: Duration = Duration::from_secs(10);
/// Fields of the identity.
const FIELDS: [&str; 4] = ["identity", "changes", "changed", "replaces"];
/// Field that is there once an organization was listed: by it a list that was lost is none without organizations.
pub(super) const HAS_ORGS: &str = "orgs";

/// The record of the identity, over the transactions of one thread.
#[derive(Clone, Copy)]
pub(crate) struct IdentityRecord<'a>(pub(crate) &'a Transactions);

impl IdentityRecord<'_> {
    /// Failovers so far.
    pub(crate) fn failovers(self) -> u64 {
        self.0.client.shared().failovers().load(Ordering::Acquire)
    }

    /// Returns whether the state is the remembered one, as of a reading after the last failover.
    pub(super) fn is_verified(self) -> bool {
        self.0.shared.identity.is_verified(self.0.client.shared().failovers())
    }

    /// Verifies the state after a failover, before anything is decided by what it has now. While it cannot be read, the
    /// decision itself says that Redis is away.
    pub(super) async fn verify_after_failover(self) -> Result<(), Unavailable> {
        let identity = &self.0.shared.identity;
        // While it is broken, the task that watches it finds the end of that.
        if !identity.is_broken() && self.0.client.is_up() {
            let _ = timeout(self.0.shared.settings.deadline, self.observe()).await;
        }
        if identity.is_broken() { Err(Unavailable::Lost) } else { Ok(()) }
    }

    /// Verifies the state at the start, and makes an identity in a new one.
    pub(crate) async fn verify_at_start(self) {
        if let Err(error) = read(self.verify_or_create()).await {
            tracing::debug!(%error, "the identity of the state is verified once Redis answers");
        }
    }

    /// Reads the identity, and makes one where there is none and none is remembered. Returns the number of changes;
    /// none when the state is not the remembered one.
    pub(super) async fn verify_or_create(self) -> Result<Option<u64>, CommandError> {
        if self.observe().await? == Continuity::Fresh {
            self.create().await?;
            self.observe().await?;
        }
        let identity = &self.0.shared.identity;
        Ok(identity.found().map(|found| found.changes).filter(|_| !identity.is_broken()))
    }

    async fn observe(self) -> Result<Continuity, CommandError> {
        let guard = &self.0.shared.identity;
        let continuity = loop {
            // A failover that comes between is verified again.
            let reading = guard.begin_reading(self.failovers());
            let found = self.read().await?;
            let is_missed = found.is_none() && guard.memory().is_none() && self.is_missed().await?;
            if let Some(continuity) = guard.complete_reading(reading, found, is_missed, Instant::now()) {
                break continuity;
            }
        };
        if continuity == Continuity::Broken(Discontinuity::Absent)
            && let Some(memory) = guard.memory()
        {
            let milliseconds = MISSED_FOR.as_millis().to_string();
            let mut mark = cmd("SET");
            mark.arg(self.0.shared.names.missed_state()).arg(memory.id.as_str()).arg("PX").arg(milliseconds);
            self.0.client.query::<()>(&mark).await?;
        }
        Ok(continuity)
    }

    /// Returns whether a gateway misses its state here.
    async fn is_missed(self) -> Result<bool, CommandError> {
        self.0.client.query(cmd("EXISTS").arg(self.0.shared.names.missed_state())).await
    }

    async fn read(self) -> Result<Option<StateIdentity>, CommandError> {
        let name = self.0.shared.names.revocations();
        let values: [Option<String>; 4] = self.0.client.query(cmd("HMGET").arg(name).arg(&FIELDS)).await?;
        let [id, changes, changed, replaces] = values;
        let Some(id) = id else { return Ok(None) };
        let number = |text: Option<String>| text.map_or(Ok(0), |text| text.parse::<u64>());
        let parsed = number(changes).and_then(|changes| Ok((changes, number(changed)?)));
        let (changes, changed) = parsed.map_err(|_| CommandError::UnexpectedReply)?;
        Ok(Some(StateIdentity {
            id: id.parse().map_err(|_| CommandError::UnexpectedReply)?,
            changes,
            changed: Micros(changed),
            replaces: StateIdentity::parse_replaces(&replaces.unwrap_or_default()),
        }))
    }

    /// Makes an identity, unless there is one, or another gateway misses its state here.
    async fn create(self) -> Result<(), CommandError> {
        let fresh = StateIdentity::generate().map_err(no_randomness)?;
        let mut transaction = self.0.transaction::<()>();
        let names = &self.0.shared.names;
        let [record, missed] = transaction.records([names.revocations(), names.missed_state()]);
        transaction.check(Check::Absent(missed), ());
        transaction.check(Check::NoField(record, FIELDS[0]), ());
        transaction.hset(record, &fields(&fresh));
        // A state from before there were identities.
        let has_orgs: bool = self.0.client.query(cmd("EXISTS").arg(names.orgs())).await?;
        if has_orgs {
            transaction.hset_field(record, HAS_ORGS, "1");
        }
        self.0.commit(transaction).await?;
        if !has_orgs && let Err(error) = begin_registry(&self.0.client, names).await {
            tracing::debug!(%error, "the gateways divide no limits before all that there may be have registered");
        }
        Ok(())
    }

    /// Gives the state a new identity, in place of the one that it has and of those that gateways miss.
    ///
    /// # Errors
    /// [`ChangeError::Unavailable`].
    pub(crate) async fn accept(self) -> Result<StateIdentity, ChangeError> {
        let timed_out = || ChangeError::Unavailable(StorageError::Redis(Unavailable::TimedOut));
        let accepted = timeout(ACCEPT_TIMEOUT, self.try_accept()).await.map_err(|_| timed_out())?;
        accepted.map_err(|error| match error {
            CommitError::Final(error) => error,
            CommitError::Command(error) => ChangeError::Unavailable(StorageError::Redis(error.into())),
            CommitError::Conflict | CommitError::Randomness(_) => {
                ChangeError::Unavailable(StorageError::Redis(Unavailable::Overloaded))
            }
        })
    }

    async fn try_accept(self) -> Result<StateIdentity, CommitError> {
        let names = &self.0.shared.names;
        let found = self.read().await?;
        let missed: Option<String> = self.0.client.query(cmd("GET").arg(names.missed_state())).await?;
        let missed: Option<StateId> = missed.and_then(|id| id.parse().ok());
        let remembered = self.0.shared.identity.memory();
        let accepted = StateIdentity::accept(found.as_ref(), remembered.as_ref(), missed.as_ref())?;
        let mut transaction = self.0.transaction::<CommitError>();
        let [record, mark] = transaction.records([names.revocations(), names.missed_state()]);
        // Of two that are made at once, one stays; the other one accepts that one.
        match &found {
            Some(found) => transaction.check(Check::Equal(record, FIELDS[0], found.id.as_str()), CommitError::Conflict),
            None => transaction.check(Check::NoField(record, FIELDS[0]), CommitError::Conflict),
        }
        transaction.hset(record, &fields(&accepted));
        transaction.del(mark);
        self.0.commit(transaction).await?.into_replicas()?;
        self.0.shared.identity.observe(Some(accepted.clone()), Instant::now());
        Ok(accepted)
    }

    /// Adds to a transaction on the revocation log's record that one more change was made: of the remembered state, or
    /// the transaction fails.
    pub(super) fn count_change(self, transaction: &mut Transaction<CommitError>, record: Record) {
        if let Some(memory) = self.0.shared.identity.memory() {
            // Another identity may be an accepted one: the change is tried again, and verified.
            let other = CommitError::Command(CommandError::UnexpectedReply);
            transaction.check(Check::Equal(record, FIELDS[0], memory.id.as_str()), other);
        }
        transaction.count_change(record);
    }

    /// Counts an import as a change by management.
    pub(crate) async fn count_import(self) -> Result<(), ImportError> {
        let Some(changes) = self.verify_or_create().await? else {
            return Err(ImportError::Refused(ChangeError::lost()));
        };
        let (mut transaction, record) = self.0.transaction_on::<CommitError>(self.0.shared.names.revocations());
        transaction.allow_oom();
        self.count_change(&mut transaction, record);
        transaction.hset_field(record, HAS_ORGS, "1");
        self.0.commit(transaction).await?.into_replicas()?;
        self.0.shared.identity.note_changes(changes + 1, Instant::now());
        Ok(())
    }

    /// Confirms that a credential is unknown: that the state is the remembered one, and has the data of the
    /// organization that the credential names; and that no data was restored since it was not found, after so many
    /// failovers.
    ///
    /// # Errors
    /// [`Unavailable`]: the state may have lost it.
    pub(crate) async fn confirm_unknown(self, tag: Option<OrgTag>, failovers: u64) -> Result<(), Unavailable> {
        let deadline = self.0.shared.settings.deadline;
        let has_lost = timeout(deadline, self.has_lost(tag)).await.map_err(|_| Unavailable::TimedOut)?;
        if has_lost? {
            return Err(Unavailable::Lost);
        }
        if self.failovers() == failovers { Ok(()) } else { Err(Unavailable::Unreachable) }
    }

    /// Returns whether the state, or the data of this organization, was lost.
    async fn has_lost(self, tag: Option<OrgTag>) -> Result<bool, CommandError> {
        self.observe().await?;
        let Some(tag) = tag.filter(|_| !self.0.shared.identity.is_broken()) else {
            return Ok(self.0.shared.identity.is_broken());
        };
        // Looked at again once it is listed: it may have been created, or imported, meanwhile.
        let is_lost = !self.has_data(tag).await? && self.is_listed(tag).await? && !self.has_data(tag).await?;
        if is_lost {
            tracing::error!(tag = tag.as_str(), "the data of an organization is missing in Redis: a shard was lost");
        }
        Ok(is_lost)
    }

    /// Returns whether there is the record of an organization.
    async fn has_data(self, tag: OrgTag) -> Result<bool, CommandError> {
        self.0.client.query(cmd("EXISTS").arg(self.0.shared.names.org(tag))).await
    }

    /// Returns whether the list of organizations has this one, or may have had it when the list was lost.
    async fn is_listed(self, tag: OrgTag) -> Result<bool, CommandError> {
        let listed = &self.0.shared.listed_orgs;
        loop {
            let failovers = self.failovers();
            let found = listed.lock().find(tag, failovers, Instant::now());
            let cursor = match found {
                ControlFlow::Break(Listing::Listed) => return Ok(true),
                ControlFlow::Break(Listing::NotListed) => return Ok(false),
                ControlFlow::Break(Listing::Empty) => {
                    let mark = (self.0.shared.names.revocations(), HAS_ORGS);
                    return self.0.client.query(cmd("HEXISTS").arg(mark.0).arg(mark.1)).await;
                }
                ControlFlow::Continue(cursor) => cursor,
            };
            let mut scan = cmd("HSCAN");
            scan.arg(self.0.shared.names.tags()).arg(cursor).arg("COUNT").arg(1000);
            let (next, pairs): (u64, Vec<(String, String)>) = self.0.client.query(&scan).await?;
            listed.lock().add(pairs.iter().filter_map(|(_, tag)| tag.parse().ok()), (next, failovers), Instant::now());
        }
    }
}

/// Reads the identity again and again, and keeps it beside the journal, for as long as the task lives.
pub(super) async fn watch_identity(transactions: Transactions) {
    loop {
        if let Err(error) = IdentityRecord(&transactions).observe().await {
            tracing::debug!(%error, "the identity of the state is not confirmed");
        }
        transactions.shared.identity.save();
        sleep(INTERVAL).await;
    }
}

fn fields(identity: &StateIdentity) -> [(&'static str, String); 4] {
    let values = [
        identity.id.as_str().to_owned(),
        identity.changes.to_string(),
        identity.changed.0.to_string(),
        identity.replaces_text(),
    ];
    let [id, changes, changed, replaces] = values;
    [(FIELDS[0], id), (FIELDS[1], changes), (FIELDS[2], changed), (FIELDS[3], replaces)]
}

fn no_randomness(error: getrandom::Error) -> CommandError {
    tracing::error!(%error, "the operating system gave no randomness for the identity of the state");
    CommandError::UnexpectedReply
}
