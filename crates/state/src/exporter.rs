//! Export of a state as a sequence of records, some at a time: what a backup and a migration read.
//!
//! - The order is the same for all variants of the state: the organizations in the order of their creation; then, for
//!   each of them, its users in the order of their creation, and its keys in the order of their ids.
//! - Memory is bounded by the ids of one organization; on Redis, where no list has all keys, by 48
//!   bytes for each digest.
//! - A record is consistent in itself. One that is changed during the export is in it as before or after the change,
//!   and one that is created meanwhile may be missing.
//! - Web sessions and tickets are left out. An ended session leaves nothing behind by which another state could know
//!   that it has ended: to import it would bring it back.

use super::{KeyExport, Org, State, StorageError, UserExport, redis};
use domain::identity::UserId;
use domain::key::{KeyDigest, KeyId};

/// Records that are read together.
const CHUNK: usize = 256;

/// A record of a state.
#[derive(Clone, Debug)]
pub enum StateRecord {
    /// An organization.
    Org(Org),
    /// A user.
    User(Box<UserExport>),
    /// A key.
    Key(Box<KeyExport>),
    /// More digests that a key had, where they are too many for its own record.
    Digests(KeyId, Vec<KeyDigest>),
}

/// Reads all records of a state, in their order.
pub struct Exporter<'a> {
    source: Source<'a>,
    orgs: Vec<Org>,
    phase: Phase,
}

enum Source<'a> {
    Embedded(&'a super::Embedded),
    Redis(redis::export::Reader<'a>),
}

/// The records that come next.
enum Phase {
    /// Organizations from this one on.
    Orgs(usize),
    /// Users of the organization with this index, from this one on.
    Users(usize, Vec<UserId>, usize),
    /// Keys of the organization with this index, from this one on.
    Keys(usize, Vec<KeyId>, usize),
    Done,
}

impl<'a> Exporter<'a> {
    /// Begins an export. On Redis this reads the index of digests.
    ///
    /// # Errors
    /// [`StorageError`].
    pub async fn begin(state: &'a State) -> Result<Self, StorageError> {
        let source = match state {
            State::Embedded(state) => Source::Embedded(state),
            State::Redis(state) => Source::Redis(state.export_reader().await.map_err(StorageError::Redis)?),
        };
        let orgs = state.orgs().await.map_err(StorageError::Redis)?;
        Ok(Self { source, orgs, phase: Phase::Orgs(0) })
    }

    /// Reads the next records; none when all were read.
    ///
    /// # Errors
    /// [`StorageError`]; the export cannot go on then.
    pub async fn next(&mut self) -> Result<Option<Vec<StateRecord>>, StorageError> {
        loop {
            let (records, next) = match std::mem::replace(&mut self.phase, Phase::Done) {
                Phase::Done => return Ok(None),
                Phase::Orgs(from) => self.next_orgs(from).await?,
                Phase::Users(org, ids, from) => self.next_users(org, ids, from).await?,
                Phase::Keys(org, ids, from) => self.next_keys(org, ids, from).await?,
            };
            self.phase = next;
            if !records.is_empty() {
                return Ok(Some(records));
            }
        }
    }

    async fn next_orgs(&mut self, from: usize) -> Result<(Vec<StateRecord>, Phase), StorageError> {
        let chunk = &self.orgs[from..self.orgs.len().min(from + CHUNK)];
        let records = chunk.iter().cloned().map(StateRecord::Org).collect();
        let end = from + chunk.len();
        let next = if end < self.orgs.len() { Phase::Orgs(end) } else { self.users_of(0).await? };
        Ok((records, next))
    }

    async fn next_users(
        &mut self,
        org: usize,
        ids: Vec<UserId>,
        from: usize,
    ) -> Result<(Vec<StateRecord>, Phase), StorageError> {
        let chunk = &ids[from..ids.len().min(from + CHUNK)];
        let users = match &self.source {
            Source::Embedded(state) => state.exported_users(chunk).await?,
            Source::Redis(reader) => reader.users(&self.orgs[org], chunk).await.map_err(StorageError::Redis)?,
        };
        let end = from + chunk.len();
        let next = if end < ids.len() { Phase::Users(org, ids, end) } else { self.keys_of(org).await? };
        Ok((users.into_iter().map(|user| StateRecord::User(Box::new(user))).collect(), next))
    }

    async fn next_keys(
        &mut self,
        org: usize,
        ids: Vec<KeyId>,
        from: usize,
    ) -> Result<(Vec<StateRecord>, Phase), StorageError> {
        let chunk = &ids[from..ids.len().min(from + CHUNK)];
        let mut keys = match &self.source {
            Source::Embedded(state) => state.exported_keys(chunk).await?,
            Source::Redis(reader) => reader.keys(chunk).await.map_err(StorageError::Redis)?,
        };
        keys.iter_mut().for_each(|key| key.replaced.sort_unstable_by_key(|digest| *digest.as_bytes()));
        let end = from + chunk.len();
        let next = if end < ids.len() { Phase::Keys(org, ids, end) } else { self.users_of(org + 1).await? };
        Ok((keys.into_iter().map(|key| StateRecord::Key(Box::new(key))).collect(), next))
    }

    /// Begins with the users of an organization.
    async fn users_of(&self, index: usize) -> Result<Phase, StorageError> {
        let Some(org) = self.orgs.get(index) else { return Ok(Phase::Done) };
        let ids = match &self.source {
            Source::Embedded(state) => state.exported_user_ids(org.id),
            Source::Redis(reader) => reader.user_ids(org).await.map_err(StorageError::Redis)?,
        };
        Ok(Phase::Users(index, ids, 0))
    }

    /// Begins with the keys of an organization.
    async fn keys_of(&self, index: usize) -> Result<Phase, StorageError> {
        let Some(org) = self.orgs.get(index) else { return Ok(Phase::Done) };
        let ids = match &self.source {
            Source::Embedded(state) => state.exported_key_ids(org.id, org.tag).await?,
            Source::Redis(reader) => reader.key_ids(org.tag),
        };
        Ok(Phase::Keys(index, ids, 0))
    }
}
