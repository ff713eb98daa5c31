//! The records that were read for a plan. The transaction of the change requires them, so that the plan holds for the
//! moment of the commit.

use std::collections::BTreeMap;

use super::check::{Check, Record};
use super::commit_error::CommitError;
use super::transaction::Transaction;
use crate::plan::Records;
use crate::redis::record_codec::{StoredKey, StoredOrg, StoredUser};
use crate::redis::record_names::RecordNames;
use crate::{ChangeError, Key, Org, Session, User};
use domain::identity::{OrgId, SessionId, UserId};
use domain::key::{KeyId, OrgTag};
use domain::session::TokenDigest;

/// Records that were read for plans.
#[derive(Default)]
pub(super) struct ReadRecords {
    pub(super) tags: BTreeMap<OrgId, Option<OrgTag>>,
    pub(super) orgs: BTreeMap<OrgId, Option<StoredOrg>>,
    pub(super) users: BTreeMap<(OrgId, UserId), Option<StoredUser>>,
    pub(super) keys: BTreeMap<KeyId, Option<StoredKey>>,
    pub(super) sessions: BTreeMap<SessionId, Option<(TokenDigest, Session)>>,
    /// Administrators other than a person.
    pub(super) other_admins: BTreeMap<(OrgId, UserId), Option<StoredUser>>,
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

impl ReadRecords {
    /// Has a transaction require the records that were found for the plan of a change: those that it changes and
    /// organizations as they were read, and of other users that they are not removed. A session has a transaction of
    /// its own.
    pub(super) fn require<F>(
        &self,
        transaction: &mut Transaction<F>,
        names: &RecordNames,
        changed: Option<UserId>,
        failure: impl Fn() -> F,
    ) {
        self.require_orgs(transaction, names, &failure);
        for stored in self.users.values().flatten() {
            let Some(record) = self.user_record(transaction, names, &stored.user) else { continue };
            if changed == Some(stored.user.id) {
                require_version(transaction, record, stored, failure());
            } else if stored.user.removed.is_none() {
                // One that was removed stays so: a plan may read it, for the limits of a key.
                transaction.check(Check::NoField(record, "removed"), failure());
            }
        }
        for StoredKey { key, live, .. } in self.keys.values().flatten() {
            let record = transaction.record(names.key(key.id));
            transaction.check(Check::Version(record, &live.version), failure());
        }
    }

    /// Has a transaction require the records of a person or a service by whose rights a change is made as they were
    /// read. The owner of a key never changes.
    pub(super) fn require_standing<F>(
        &self,
        transaction: &mut Transaction<F>,
        names: &RecordNames,
        failure: impl Fn() -> F,
    ) {
        self.require_orgs(transaction, names, &failure);
        for stored in self.users.values().chain(self.other_admins.values()).flatten() {
            if let Some(record) = self.user_record(transaction, names, &stored.user) {
                require_version(transaction, record, stored, failure());
            }
        }
    }

    fn require_orgs<F>(&self, transaction: &mut Transaction<F>, names: &RecordNames, failure: impl Fn() -> F) {
        for StoredOrg { org, version, .. } in self.orgs.values().flatten() {
            let record = transaction.record(names.org(org.tag));
            transaction.check(Check::Version(record, version), failure());
        }
    }

    fn user_record<F>(&self, transaction: &mut Transaction<F>, names: &RecordNames, user: &User) -> Option<Record> {
        let tag = self.tags.get(&user.org).copied().flatten()?;
        Some(transaction.record(names.user(tag, user.id)))
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

fn require_version<F>(transaction: &mut Transaction<F>, record: Record, stored: &StoredUser, failure: F) {
    transaction.check(Check::Equal(record, "version", &String::from_utf8_lossy(&stored.version)), failure);
}

impl Records for ReadRecords {
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
