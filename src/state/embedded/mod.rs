//! Embedded state: records in memory, durable in SQLite.
//!
//! - A decision reads and writes memory only: one look-up by digest, one short lock in the key's record.
//! - A change is committed to the file, then applied to memory, then answered (`writer`).
//! - What uses change about a key (bucket, Last Used, the number of its uses) is written back each second and at the
//!   end. What a crash leaves out is made up for by [`Embedded::replay`], so a restart never fills a bucket.
//! - Web sessions are found in memory too; tickets, which are taken once, are in the file only.
//! - One process has the file at a time.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use crate::clock::Micros;
use crate::identity::{OrgId, UserId};
use crate::key::{KeyDigest, KeyId};
use crate::quota::{Quota, RateLimitStatus};
use crate::refusal::Refusal;

use super::{Change, ChangeError, DecideRequest, Decision, Defaults, Key, Org, StateExport, User};

mod live;
mod grant;
mod permit;
mod directory;
mod store;
mod changes;
mod sessions;
mod session_rows;
mod tickets;
mod writer;

use directory::Directory;
pub use permit::Permit;
use store::Lock;
use writer::Writer;

/// How the embedded state is set up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The SQLite file. Its directory is created when missing (mode 0700), the file is made with mode 0600.
    pub path: PathBuf,
    /// The quota of keys without one of their own.
    pub quota: Quota,
    /// The concurrency of organizations without one of their own.
    pub concurrent: u32,
}

impl Settings {
    /// The limits of those who have none of their own.
    pub(in crate::state) fn defaults(&self) -> Defaults {
        Defaults { quota: self.quota, concurrent: self.concurrent }
    }
}

/// What a use was counted by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Used {
    /// A key.
    Key(KeyId),
    /// The session quota key of a user: one of the user's sessions was used.
    SessionQuotaKey(UserId),
}

/// One use that the journal knows of, to be replayed at start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Replay {
    /// What was used.
    pub used: Used,
    /// When it was used.
    pub time: Micros,
    /// The number of the use, as [`super::Admitted::number`] had it.
    pub number: u64,
}

/// Why the state could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Another process has it.
    #[error("{0} is in use by another process")]
    Locked(PathBuf),
    /// The file system said no.
    #[error("{path}: cannot be opened")]
    Io {
        /// What could not be opened.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// SQLite said no.
    #[error("{path}: cannot be read as a state file")]
    Sqlite {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: rusqlite::Error,
    },
    /// A newer version of keygate has written it.
    #[error("{path}: has version {found} of the state file, and this keygate knows up to {known}; use a newer one")]
    Newer {
        /// The file.
        path: PathBuf,
        /// Its version.
        found: i64,
        /// The newest version that can be read.
        known: i64,
    },
}

/// The embedded state.
///
/// - Dropping it writes back what uses changed, as [`Embedded::close`] does, and waits for that.
/// - The file is free for another process when this is dropped.
pub struct Embedded {
    directory: Arc<Directory>,
    written_back_at: Micros,
    /// Before `_lock`: its thread has ended when the lock is given back.
    writer: Writer,
    _lock: Lock,
}

impl Embedded {
    /// Opens the state file, makes it when there is none, brings an older one up to date, and reads it whole.
    ///
    /// # Errors
    /// [`OpenError`]: in use by another process, not accessible, not a state file, or of a newer version.
    pub fn open(settings: &Settings) -> Result<Self, OpenError> {
        let path = &settings.path;
        let sqlite = |source| OpenError::Sqlite { path: path.clone(), source };
        let lock = Lock::take(path)?;
        let connection = store::open(path)?;
        let written_back_at = store::written_back_at(&connection).map_err(sqlite)?;
        let directory = Arc::new(store::load(&connection, settings).map_err(sqlite)?);
        let writer = Writer::start(connection, Arc::clone(&directory))
            .map_err(|source| OpenError::Io { path: path.clone(), source })?;
        Ok(Self { directory, written_back_at, writer, _lock: lock })
    }

    /// The file, when it was opened, knew of every use up to this time, and of some later ones. The epoch when no use
    /// was ever written back. What the journal has from here on is to be replayed; replaying more does no harm.
    pub fn written_back_at(&self) -> Micros {
        self.written_back_at
    }

    /// Makes up for the uses that a crash kept from being written back, in any order; to be called before the first
    /// decision. Uses the file knows of, and uses of unknown keys and users, are skipped. Says how many were counted.
    ///
    /// Each takes its token at its time. A gap in the numbers, left by uses that the journal did not keep, takes its
    /// tokens with the next use: no bucket is ever fuller than it was.
    pub fn replay(&self, uses: &[Replay]) -> u64 {
        let mut uses = uses.to_vec();
        uses.sort_unstable_by_key(|replay| (replay.used, replay.number));
        self.directory.replay(&uses)
    }

    /// Decides one request: all or nothing. See [`super::State::decide`].
    pub fn decide(&self, ask: DecideRequest<'_>) -> Decision {
        match self.directory.by_digest(ask.digest) {
            Some(record) => record.decide(ask, &self.directory.used),
            None => Decision::Denied { refusal: Refusal::Unknown, principal: None, rate_limit: None },
        }
    }

    /// Makes one change durable and effective. Once the future was polled the change is made, even when it is dropped.
    ///
    /// # Errors
    /// [`ChangeError`]; nothing was changed then.
    pub async fn change(&self, change: Change) -> Result<(), ChangeError> {
        self.writer.change(change).await
    }

    /// All organizations, in the order of their creation.
    pub fn orgs(&self) -> Vec<Org> {
        self.directory.orgs()
    }

    /// All users of an organization, removed ones too, in the order of their creation.
    pub fn users(&self, org: OrgId) -> Vec<User> {
        self.directory.users(org)
    }

    /// One organization.
    pub fn org(&self, id: OrgId) -> Option<Org> {
        self.directory.org(id)
    }

    /// The user with an email address. See [`super::State::user_by_email`].
    pub fn user_by_email(&self, org: OrgId, email: &str) -> Option<User> {
        self.directory.user_by_email(org, email)
    }

    /// An organization and one of its users. See [`super::State::member`].
    pub fn member(&self, org: OrgId, user: UserId) -> Option<(Org, User)> {
        self.directory.member(org, user)
    }

    /// All keys of an organization, revoked ones too, in the order of their creation; no session quota keys.
    pub fn keys(&self, org: OrgId) -> Vec<Key> {
        self.directory.keys(org)
    }

    /// The quota of a key without one of its own.
    pub fn quota(&self) -> Quota {
        self.directory.defaults().quota
    }

    /// Requests that an organization without a limit of its own may have in flight.
    pub fn concurrent(&self) -> u32 {
        self.directory.defaults().concurrent
    }

    /// Puts other limits in force for those who have none of their own. See [`super::State::set_defaults`].
    pub fn set_defaults(&self, defaults: Defaults) {
        self.directory.set_defaults(defaults);
    }

    /// The key that has, or had, this digest.
    pub fn key_of(&self, digest: &KeyDigest) -> Option<KeyId> {
        self.directory.by_digest(digest).map(|record| record.view().id)
    }

    /// One key.
    pub fn key(&self, id: KeyId) -> Option<Key> {
        self.directory.key(id).map(|record| record.view())
    }

    /// Where a key stands, taking nothing.
    pub fn rate_limit_status(&self, id: KeyId, now: Micros) -> Option<RateLimitStatus> {
        self.directory.key(id).map(|record| record.rate_limit_status(now))
    }

    /// Everything there is, to be carried to another state; for a moment when nobody changes or uses it.
    pub fn export(&self) -> StateExport {
        self.directory.export()
    }

    /// Requests in flight of all organizations together.
    pub fn in_flight(&self) -> u64 {
        self.directory.in_flight()
    }

    /// Writes back what is not yet durable and closes the file. Decisions go on from memory, and are not written back;
    /// changes answer [`ChangeError::Closed`].
    pub async fn close(&self) {
        self.writer.close().await;
    }
}

impl fmt::Debug for Embedded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Embedded").field("written_back_at", &self.written_back_at).finish_non_exhaustive()
    }
}
