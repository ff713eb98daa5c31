//! Embedded state: records in memory, durable in SQLite.

use std::path::PathBuf;

use crate::clock::Micros;
use crate::identity::OrgId;
use crate::key::KeyId;
use crate::quota::{Quota, Standing};

use super::{Ask, Change, ChangeError, Decision, Key, Org, User};

/// How the embedded state is set up.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The SQLite file. Its directory is created when missing (mode 0700), the file is made with mode 0600.
    pub path: PathBuf,
    /// The quota of keys without one of their own.
    pub quota: Quota,
    /// The concurrency of organizations without one of their own.
    pub concurrent: u32,
}

/// One use of a key that the journal knows of, to be replayed at start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Replay {
    /// The key.
    pub key: KeyId,
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
}

/// The embedded state.
#[derive(Debug)]
pub struct Embedded;

/// A slot of an organization, given back on drop.
#[derive(Debug)]
pub struct Permit;

#[allow(unused_variables, clippy::unused_async, missing_docs)]
impl Embedded {
    pub fn open(settings: &Settings) -> Result<Self, OpenError> {
        unimplemented!()
    }
    pub fn written_back_at(&self) -> Micros {
        unimplemented!()
    }
    pub fn replay(&self, uses: &[Replay]) -> u64 {
        unimplemented!()
    }
    pub fn decide(&self, ask: Ask<'_>) -> Decision {
        unimplemented!()
    }
    pub async fn change(&self, change: Change) -> Result<(), ChangeError> {
        unimplemented!()
    }
    pub fn orgs(&self) -> Vec<Org> {
        unimplemented!()
    }
    pub fn users(&self, org: OrgId) -> Vec<User> {
        unimplemented!()
    }
    pub fn keys(&self, org: OrgId) -> Vec<Key> {
        unimplemented!()
    }
    pub fn key(&self, id: KeyId) -> Option<Key> {
        unimplemented!()
    }
    pub fn standing(&self, id: KeyId, now: Micros) -> Option<Standing> {
        unimplemented!()
    }
    pub fn in_flight(&self) -> u64 {
        unimplemented!()
    }
    pub async fn close(&self) {
        unimplemented!()
    }
}
