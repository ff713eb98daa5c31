//! Embedded state: records in memory, durable in SQLite.
//!
//! - A decision reads and writes memory only: one look-up by digest, one short lock in the key's record (`key`).
//! - A change is committed to the file, then applied to memory, then acknowledged (`writer`).
//! - The usage of a key (bucket, Last Used, number of uses) is written back at checkpoints and at the end. Uses that a
//!   crash kept from being written back are counted again from the journal ([`Embedded::replay`]): a restart never
//!   refills a bucket. Until a journal is followed ([`Embedded::follow_journal`]), usage is written back each second.
//! - Sessions and management tokens are in memory too; tickets, which are taken once, are in the file only.
//! - One process has the file at a time (`state_file`). It keeps space for revocations on a full disk (`file_reserve`).

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use crate::near_budgets::NearBudgets;
use crate::spending::{Spending, SpendingChange};
use domain::budget::{Budget, BudgetSubject, BudgetTotal};
use domain::clock::Micros;
use domain::identity::{OrgId, UserId};
use domain::key::KeyId;
use domain::page::Page;
use domain::quota::{Quota, RateLimitStatus};
use parking_lot::RwLockReadGuard;
use rusqlite::Connection;

use super::cursor_secret::CursorSecret;
use super::identity::{IdentityGuard, StateIdentity};
use super::{Bounds, Change, ChangeError, DecideRequest, Decision, Defaults, Key, KeyList, KeyPosition, LimitPlans};

mod budgets;
mod key;
mod key_policies;
mod sessions;
mod directory;
mod revocations;
mod sql;
mod open_error;
mod state_file;
mod file_reserve;
mod identity_rows;
mod management_tokens;
mod tickets;
mod org_rows;
mod user_rows;
mod key_rows;
mod session_rows;
mod usage_blocks;
mod key_creation;
mod key_actors;
mod federation;
mod org_looks;
mod retired;
mod preconditions;
mod file_records;
mod changes;
mod imports;
mod load_keys;
mod load;
mod operation;
mod writer;
mod commit;
mod checkpoint;
mod checkpoint_schedule;
mod write_back;
mod export;
mod import;
mod successor_permit;
mod successor;
mod handover;
mod decision_codec;
#[cfg(test)]
mod fixture;

use directory::{Directory, Tree};
use file_reserve::FileReserve;
use identity_rows::{OpenFiles, StateIdentityWatch};
use operation::Operation;
use state_file::Lock;
use successor::HandoverSwitch;
use writer::Writer;

pub(crate) use budgets::BudgetMeter;
pub use budgets::Settlement;
pub use checkpoint_schedule::JournalProgress;
pub use decision_codec::DecisionRecord;
pub use key::Permit;
pub use open_error::OpenError;
pub use successor::{OwnedAccess, OwnedDecideRequest, Successor, SuccessorRequest};
pub use successor_permit::SuccessorPermit;

/// Settings of the embedded state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The SQLite file. Its directory is created when missing (mode 0700), the file is made with mode 0600.
    pub path: PathBuf,
    /// The quota of keys without a quota of their own.
    pub quota: Quota,
    /// Requests that an organization without a limit of its own may have in flight.
    pub concurrent: u32,
    /// The plans that keys, users and organizations can be given.
    pub plans: LimitPlans,
}

impl Settings {
    /// The limits of keys and organizations without limits of their own.
    pub(crate) fn defaults(&self) -> Defaults {
        Defaults { quota: self.quota, concurrent: self.concurrent, plans: self.plans.clone() }
    }
}

/// The key record that counted a use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum UsedKey {
    /// An API key.
    Key(KeyId),
    /// The session quota key of a user: one of the user's sessions was used.
    SessionQuotaKey(UserId),
}

/// One use from the audit journal, to be replayed at start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JournaledUse {
    /// The key record that counted it.
    pub key: UsedKey,
    /// Time of the use.
    pub time: Micros,
    /// Number of the use: [`super::Admitted::number`].
    pub number: u64,
    /// Tokens that it took.
    pub cost: u32,
}

/// The embedded state.
///
/// - Dropping it writes back the usage of keys, as [`Embedded::close`] does, and waits for that.
/// - When it is dropped, another process can open the file.
pub struct Embedded {
    directory: Arc<Directory>,
    written_back_at: Micros,
    written_back_line: Option<u64>,
    cursor_secret: CursorSecret,
    identity: Arc<IdentityGuard>,
    handover: HandoverSwitch,
    /// Declared before `lock`, so dropped before it: its thread has ended when the lock is released.
    writer: Writer,
    lock: Lock,
}

impl Embedded {
    /// Opens the state file, creates it when it is missing, and reads it whole.
    ///
    /// # Errors
    /// [`OpenError`]: in use by another process, not accessible, not a state file, or of another version.
    pub fn open(settings: &Settings) -> Result<Self, OpenError> {
        Self::open_locked(settings, Lock::acquire(&settings.path)?)
    }

    /// As [`Embedded::open`], with the lock that the predecessor has handed over ([`Embedded::share_lock`]).
    ///
    /// # Errors
    /// [`OpenError`]; also when the lock is that of another file.
    pub fn open_with_lock(settings: &Settings, lock: std::fs::File) -> Result<Self, OpenError> {
        Self::open_locked(settings, Lock::adopt(&settings.path, lock)?)
    }

    fn open_locked(settings: &Settings, lock: Lock) -> Result<Self, OpenError> {
        let path = &settings.path;
        let connection = state_file::open(path)?;
        let reserve = FileReserve::new(path, &connection);
        let files = OpenFiles::new(path).map_err(|source| OpenError::Io { path: path.clone(), source })?;
        Self::start(path, connection, reserve, files, lock, settings.defaults())
    }

    /// An empty state in memory, with no file: for changes that are only tried.
    pub(super) fn in_memory(defaults: Defaults) -> Result<Self, OpenError> {
        let connection = state_file::open_in_memory()?;
        let path = Path::new(state_file::IN_MEMORY);
        Self::start(path, connection, FileReserve::of_memory(), OpenFiles::default(), Lock::of_memory(), defaults)
    }

    fn start(
        path: &Path,
        connection: Connection,
        reserve: FileReserve,
        files: OpenFiles,
        lock: Lock,
        defaults: Defaults,
    ) -> Result<Self, OpenError> {
        let sqlite = |source| OpenError::Sqlite { path: path.to_owned(), source };
        let written_back_at = load::read_written_back_at(&connection).map_err(sqlite)?;
        let written_back_line = load::read_written_back_line(&connection).map_err(sqlite)?;
        let cursor_secret = load::read_cursor_secret(&connection).map_err(sqlite)?;
        let found = identity_rows::read(&connection).map_err(sqlite)?;
        // A commit that was acknowledged is never lost.
        let identity = Arc::new(IdentityGuard::new(Duration::ZERO));
        identity.observe(Some(found.clone()), Instant::now());
        let directory = Arc::new(load::load(path, &connection, defaults).map_err(sqlite)?);
        let watched = StateIdentityWatch { guard: Arc::clone(&identity), identity: found, files };
        let writer = Writer::start(connection, reserve, Arc::clone(&directory), watched)
            .map_err(|source| OpenError::Io { path: path.to_owned(), source })?;
        let handover = HandoverSwitch::new();
        Ok(Self { directory, written_back_at, written_back_line, cursor_secret, identity, handover, writer, lock })
    }

    /// The time up to which the file, when it was opened, had counted every use; it may have counted later ones too.
    /// The epoch when no use was ever written back. Journaled uses from here on are to be replayed; replaying more does
    /// no harm.
    pub fn written_back_at(&self) -> Micros {
        self.written_back_at
    }

    /// The number of the journal's line, over all segments, before which the file had counted every use when it was
    /// opened; `None` when that is not known, as before the first write-back. Unlike the time, it is right whatever the
    /// clock did.
    pub fn written_back_line(&self) -> Option<u64> {
        self.written_back_line
    }

    /// Replays journaled uses that were not written back before a crash, in any order. Call before the first decision.
    /// Uses that the file has counted, and uses of unknown keys and users, are skipped. Returns the number replayed.
    ///
    /// Each use takes its tokens at its time. A gap in the numbers, left by uses that the journal did not keep, takes
    /// tokens with the next use, for each of them the largest cost of these uses and of the routes (`largest_cost`):
    /// no bucket is ever fuller than it was.
    pub fn replay(&self, uses: &[JournaledUse], largest_cost: u32) -> u64 {
        let mut uses = uses.to_vec();
        uses.sort_unstable_by_key(|replayed| (replayed.key, replayed.number));
        let largest = uses.iter().map(|replayed| replayed.cost).fold(largest_cost, u32::max);
        self.directory.replay(&uses, largest)
    }

    /// Takes over what the journal says of budgets: what subjects had reserved, and what had come back to them. In any
    /// order, and as often as it likes. Call before the first decision.
    pub fn replay_budgets(
        &self,
        reserved: impl IntoIterator<Item = BudgetTotal>,
        returned: impl IntoIterator<Item = BudgetTotal>,
    ) {
        let told = |BudgetTotal { subject, start, units }, is_reserved: bool| {
            let [reserved, returned] = if is_reserved { [units, 0] } else { [0, units] };
            self.directory.budgets.replay(subject, Spending { start, reserved, returned, ..Spending::default() });
        };
        reserved.into_iter().for_each(|total| told(total, true));
        returned.into_iter().for_each(|total| told(total, false));
    }

    /// Returns what a subject has spent of its budget.
    pub(super) fn spending_of(&self, subject: BudgetSubject) -> Spending {
        self.directory.budgets.spending(subject)
    }

    /// Corrects what a subject has spent. See [`super::State::change_spending`].
    ///
    /// # Errors
    /// [`ChangeError`]; the correction holds, and is durable as soon as usage can be written back.
    pub(super) async fn change_spending(
        &self,
        subject: BudgetSubject,
        budget: Budget,
        change: SpendingChange,
        now: Micros,
    ) -> Result<Option<[Spending; 2]>, ChangeError> {
        if self.is_frozen() {
            return Err(ChangeError::HandedOver);
        }
        // In memory first: what requests spend meanwhile is in the meter, and the file gets the meter.
        let corrected = self.directory.budgets.meter(subject).correct(budget, change, now);
        if corrected.is_some() {
            self.writer.write_budgets().await?;
        }
        Ok(corrected)
    }

    /// Writes usage back at checkpoints from now on, while the journal has every use; each second while `progress`
    /// returns none. Call after the replay.
    pub fn follow_journal(&self, progress: impl Fn() -> Option<JournalProgress> + Send + 'static) {
        self.writer.follow_journal(Box::new(progress));
    }

    /// Decides one request: all or nothing. See [`super::State::decide`].
    pub fn decide(&self, request: DecideRequest<'_>) -> Decision {
        match self.directory.by_digest(request.digest) {
            Some(record) => self.directory.decide(&record, request),
            None => self.directory.retired.decide(request.digest),
        }
    }

    /// Makes one change durable and effective. Once the future was polled, the change is made even when the future is
    /// dropped.
    ///
    /// # Errors
    /// [`ChangeError`]; nothing was changed then.
    pub async fn change(&self, change: Change) -> Result<(), ChangeError> {
        self.writer.submit(Operation::Change(change)).await.map(drop)
    }

    /// Continuity of the state.
    pub(super) fn identity(&self) -> &Arc<IdentityGuard> {
        &self.identity
    }

    /// Gives the state a new identity, in place of the one that is remembered.
    pub(super) async fn accept(&self) -> Result<StateIdentity, ChangeError> {
        let accepted = StateIdentity::accept(self.identity.found().as_ref(), self.identity.memory().as_ref(), None);
        let accepted = accepted.map_err(|_| ChangeError::Closed)?;
        self.writer.submit(Operation::Accept(accepted.clone())).await?;
        Ok(accepted)
    }

    /// The records, for look-ups. The guard keeps changes waiting.
    pub(super) fn tree(&self) -> RwLockReadGuard<'_, Tree> {
        self.directory.tree()
    }

    /// All keys of an organization, revoked ones too, in the order of their creation; no session quota keys.
    pub fn keys(&self, org: OrgId) -> Vec<Key> {
        // Viewed after the lock: each view waits for the lock of its record.
        let records = self.tree().keys(org);
        records.iter().map(|record| record.view()).collect()
    }

    /// Some keys. See [`super::State::page_of_keys`].
    pub fn page_of_keys(&self, list: KeyList, after: Option<KeyPosition>, limit: usize) -> Page<Key, KeyPosition> {
        let records = self.tree().listed_keys(list, after, limit + 1);
        Page::cut(records.iter().map(|record| record.view()).collect(), limit, |key| key.into())
    }

    /// The number of keys of a list. See [`super::State::count_of_keys`].
    pub fn count_of_keys(&self, list: KeyList) -> u64 {
        self.tree().count_of_keys(list)
    }

    /// The bounds of what people create.
    pub fn bounds(&self) -> Bounds {
        self.directory.bounds()
    }

    /// Replaces the bounds of what people create. See [`super::State::set_bounds`].
    pub fn set_bounds(&self, bounds: Bounds) {
        self.directory.set_bounds(bounds);
        // Keys whose time is over by these bounds leave before the next change.
        self.writer.retire();
    }

    /// The secret that the cursors of lists are sealed with.
    pub fn cursor_secret(&self) -> CursorSecret {
        self.cursor_secret.clone()
    }

    /// The limits of keys and organizations without limits of their own.
    pub fn defaults(&self) -> Defaults {
        self.directory.defaults()
    }

    /// Decisions about keys of plans that the configuration does not have.
    pub(super) fn missing_plan_decisions(&self) -> u64 {
        self.directory.missing_plan_decisions.load(Ordering::Relaxed)
    }

    /// Replaces the limits of keys and organizations without limits of their own. See [`super::State::set_defaults`].
    pub fn set_defaults(&self, defaults: Defaults) {
        self.directory.set_defaults(defaults);
    }

    /// The rate-limit status of a key. Takes nothing.
    pub fn rate_limit_status(&self, id: KeyId, now: Micros) -> Option<RateLimitStatus> {
        self.directory.key(id).map(|record| record.rate_limit_status(now))
    }

    /// The budgets that decisions have found nearly spent.
    pub(super) fn near_budgets(&self) -> &NearBudgets {
        &self.directory.budgets.near
    }

    /// Requests in flight of all organizations together.
    pub fn in_flight(&self) -> u64 {
        self.tree().in_flight()
    }

    /// Writes back what is not yet durable and closes the file. Later decisions are made from memory and not written
    /// back; later changes fail with [`ChangeError::Closed`].
    pub async fn close(&self) {
        self.writer.close().await;
    }
}

impl fmt::Debug for Embedded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Embedded").field("written_back_at", &self.written_back_at).finish_non_exhaustive()
    }
}
