//! The records that a plan asks for: read one by one, until the plan is complete. The transaction of the change then
//! requires the version of each, so that the plan holds for the moment of the commit.

use std::collections::BTreeMap;

use super::check::Check;
use super::commit_error::CommitError;
use super::orgs::Orgs;
use super::session_index::SessionIndex;
use super::sessions::Sessions;
use super::transaction::Transaction;
use super::transactions::Transactions;
use super::users::Users;
use crate::plan::Records;
use crate::redis::record_codec::{StoredKey, StoredOrg, StoredUser};
use crate::{ChangeError, Key, Org, Session, User};
use domain::identity::{OrgId, SessionId, UserId};
use domain::key::{KeyId, OrgTag};
use domain::session::TokenDigest;
use redis_client::CommandError;

/// Users that are read at a time.
const USERS_AT_A_TIME: usize = 100;

/// Records that were read for plans, over the transactions of one thread.
pub(super) struct ReadRecords<'a> {
    transactions: &'a Transactions,
    tags: BTreeMap<OrgId, Option<OrgTag>>,
    orgs: BTreeMap<OrgId, Option<StoredOrg>>,
    users: BTreeMap<(OrgId, UserId), Option<StoredUser>>,
    keys: BTreeMap<KeyId, Option<StoredKey>>,
    sessions: BTreeMap<SessionId, Option<(TokenDigest, Session)>>,
    /// Administrators other than a person.
    other_admins: BTreeMap<(OrgId, UserId), Option<StoredUser>>,
}

/// A record that a plan asks for.
#[derive(Clone, Copy, Debug)]
pub(super) enum Lookup {
    Org(OrgId),
    User(OrgId, UserId),
    Key(KeyId),
    Session(SessionId),
    OtherAdmin(OrgId, UserId),
}

/// Reason why a plan is not made.
#[derive(Debug)]
pub(super) enum Unplanned {
    Refused(ChangeError),
    /// This is to be read first.
    Unread(Lookup),
}

impl From<ChangeError> for Unplanned {
    fn from(refused: ChangeError) -> Self {
        Self::Refused(refused)
    }
}

impl<'a> ReadRecords<'a> {
    pub(super) fn new(transactions: &'a Transactions) -> Self {
        Self {
            transactions,
            tags: BTreeMap::new(),
            orgs: BTreeMap::new(),
            users: BTreeMap::new(),
            keys: BTreeMap::new(),
            sessions: BTreeMap::new(),
            other_admins: BTreeMap::new(),
        }
    }

    /// Makes a plan, and reads what it asks for.
    ///
    /// # Errors
    /// The plan refuses the change, or a command failed.
    pub(super) async fn complete<T>(&mut self, plan: impl Fn(&Self) -> Result<T, Unplanned>) -> Result<T, CommitError> {
        loop {
            match plan(self) {
                Ok(planned) => return Ok(planned),
                Err(Unplanned::Refused(refused)) => return Err(refused.into()),
                Err(Unplanned::Unread(lookup)) => self.read(lookup).await?,
            }
        }
    }

    /// Reads a record.
    pub(super) async fn read(&mut self, lookup: Lookup) -> Result<(), CommandError> {
        let transactions = self.transactions;
        match lookup {
            Lookup::Org(org) => {
                let read = async |tag| {
                    let fields = transactions.read_fields(&transactions.shared.names.org(tag)).await?;
                    fields.map(|fields| fields.org()).transpose()
                };
                let stored = if let Some(tag) = self.tag(org).await? { read(tag).await? } else { None };
                self.orgs.insert(org, stored);
            }
            Lookup::User(org, user) => {
                let tag = self.tag(org).await?;
                let stored = match tag {
                    Some(tag) => Users(transactions).find_stored(tag, org, user).await?,
                    None => None,
                };
                self.users.insert((org, user), stored);
            }
            Lookup::Key(key) => {
                self.keys.insert(key, transactions.read_key(key).await?);
            }
            Lookup::Session(id) => {
                let digest = SessionIndex(transactions).find_digest(id).await?;
                let session = match digest {
                    Some(digest) => Sessions(transactions).read(&digest).await?,
                    None => None,
                };
                self.sessions.insert(id, digest.zip(session));
            }
            Lookup::OtherAdmin(org, person) => {
                let other = self.read_other_admin(org, person).await?;
                self.other_admins.insert((org, person), other);
            }
        }
        Ok(())
    }

    async fn tag(&mut self, org: OrgId) -> Result<Option<OrgTag>, CommandError> {
        if let Some(tag) = self.tags.get(&org) {
            return Ok(*tag);
        }
        let tag = Orgs(self.transactions).find_tag(org).await?;
        self.tags.insert(org, tag);
        Ok(tag)
    }

    async fn read_other_admin(&mut self, org: OrgId, person: UserId) -> Result<Option<StoredUser>, CommandError> {
        let Some(tag) = self.tag(org).await? else { return Ok(None) };
        let users = Users(self.transactions);
        let mut from = Some(0);
        while let Some(position) = from {
            let page = users.page(org, position, USERS_AT_A_TIME).await?;
            for other in page.items.iter().filter(|other| other.id != person && other.is_active_admin()) {
                // Read again with its version.
                let stored = users.find_stored(tag, org, other.id).await?;
                if let Some(stored) = stored.filter(|stored| stored.user.is_active_admin()) {
                    return Ok(Some(stored));
                }
            }
            from = page.next;
        }
        Ok(None)
    }

    /// Has a transaction require all records that were found as they were read, but for sessions.
    pub(super) fn require<F>(&self, transaction: &mut Transaction<F>, failure: impl Fn() -> F) {
        let names = &self.transactions.shared.names;
        for StoredOrg { org, version, .. } in self.orgs.values().flatten() {
            let record = transaction.record(names.org(org.tag));
            transaction.check(Check::Version(record, version), failure());
        }
        for StoredUser { user, version, .. } in self.users.values().chain(self.other_admins.values()).flatten() {
            let Some(tag) = self.tags.get(&user.org).copied().flatten() else { continue };
            let record = transaction.record(names.user(tag, user.id));
            transaction.check(Check::Equal(record, "version", &String::from_utf8_lossy(version)), failure());
        }
        for StoredKey { key, live, .. } in self.keys.values().flatten() {
            let record = transaction.record(names.key(key.id));
            transaction.check(Check::Version(record, &live.version), failure());
        }
    }

    /// The record of an organization that a plan has changed.
    pub(super) fn stored_org(&self, id: OrgId) -> Result<&StoredOrg, CommitError> {
        self.orgs.get(&id).and_then(Option::as_ref).ok_or(CommitError::Conflict)
    }

    /// The record of a user that a plan has changed, and the tag of the organization.
    pub(super) fn stored_user(&self, org: OrgId, id: UserId) -> Result<(OrgTag, &StoredUser), CommitError> {
        let tag = self.tags.get(&org).copied().flatten();
        tag.zip(self.users.get(&(org, id)).and_then(Option::as_ref)).ok_or(CommitError::Conflict)
    }

    /// The record of a key that a plan has changed.
    pub(super) fn stored_key(&self, id: KeyId) -> Result<&StoredKey, CommitError> {
        self.keys.get(&id).and_then(Option::as_ref).ok_or(CommitError::Conflict)
    }

    /// The digest of a session that a plan has changed.
    pub(super) fn digest_of(&self, id: SessionId) -> Result<&TokenDigest, CommitError> {
        self.sessions.get(&id).and_then(Option::as_ref).map(|(digest, _)| digest).ok_or(CommitError::Conflict)
    }

    /// The tag of an organization that was looked up.
    pub(super) fn tag_of(&self, org: OrgId) -> Result<OrgTag, CommitError> {
        self.orgs.get(&org).and_then(Option::as_ref).map(|stored| stored.org.tag).ok_or(CommitError::Conflict)
    }
}

impl Records for ReadRecords<'_> {
    type Error = Unplanned;

    fn org(&self, id: OrgId) -> Result<Option<Org>, Unplanned> {
        let found = self.orgs.get(&id).ok_or(Unplanned::Unread(Lookup::Org(id)))?;
        Ok(found.as_ref().map(|stored| stored.org.clone()))
    }

    fn user(&self, org: OrgId, id: UserId) -> Result<Option<User>, Unplanned> {
        let found = self.users.get(&(org, id)).ok_or(Unplanned::Unread(Lookup::User(org, id)))?;
        Ok(found.as_ref().map(|stored| stored.user.clone()))
    }

    fn key(&self, id: KeyId) -> Result<Option<Key>, Unplanned> {
        let found = self.keys.get(&id).ok_or(Unplanned::Unread(Lookup::Key(id)))?;
        Ok(found.as_ref().map(|stored| stored.key.clone()))
    }

    fn session(&self, id: SessionId) -> Result<Option<Session>, Unplanned> {
        let found = self.sessions.get(&id).ok_or(Unplanned::Unread(Lookup::Session(id)))?;
        Ok(found.as_ref().map(|(_, session)| session.clone()))
    }

    fn has_other_admin(&self, org: OrgId, person: UserId) -> Result<bool, Unplanned> {
        let found = self.other_admins.get(&(org, person));
        Ok(found.ok_or(Unplanned::Unread(Lookup::OtherAdmin(org, person)))?.is_some())
    }
}
