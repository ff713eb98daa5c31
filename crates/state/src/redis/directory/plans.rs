//! Plans of changes: the records that a plan asks for are read, until it is complete.

use super::commit_error::CommitError;
use super::orgs::Orgs;
use super::read_records::{Lookup, ReadRecords, Unplanned};
use super::session_index::SessionIndex;
use super::sessions::Sessions;
use super::transactions::Transactions;
use super::users::Users;
use crate::redis::record_codec::StoredUser;
use domain::identity::{OrgId, UserId};
use domain::key::OrgTag;
use redis_client::CommandError;

/// Users that are read at a time.
const USERS_AT_A_TIME: usize = 100;

/// Plans, over the transactions of one thread.
#[derive(Clone, Copy)]
pub(super) struct Plans<'a>(pub(super) &'a Transactions);

impl Plans<'_> {
    /// Makes a plan, and reads what it asks for.
    ///
    /// # Errors
    /// The plan refuses the change, or a command failed.
    pub(super) async fn complete<T>(
        self,
        records: &mut ReadRecords,
        plan: impl Fn(&ReadRecords) -> Result<T, Unplanned>,
    ) -> Result<T, CommitError> {
        loop {
            match plan(records) {
                Ok(planned) => return Ok(planned),
                Err(Unplanned::Refused(refused)) => return Err(refused.into()),
                Err(Unplanned::Unread(lookup)) => self.read(records, lookup).await?,
            }
        }
    }

    /// Reads a record.
    pub(super) async fn read(self, records: &mut ReadRecords, lookup: Lookup) -> Result<(), CommandError> {
        let transactions = self.0;
        match lookup {
            Lookup::Org(org) => {
                let read = async |tag| {
                    let fields = transactions.read_fields(&transactions.shared.names.org(tag)).await?;
                    fields.map(|fields| fields.org()).transpose()
                };
                let stored = if let Some(tag) = self.tag(records, org).await? { read(tag).await? } else { None };
                let stored = stored.filter(|stored| stored.org.id == org);
                records.orgs.insert(org, stored);
            }
            Lookup::User(org, user) => {
                let tag = self.tag(records, org).await?;
                let stored = match tag {
                    Some(tag) => Users(transactions).find_stored(tag, org, user).await?,
                    None => None,
                };
                records.users.insert((org, user), stored);
            }
            Lookup::Key(key) => {
                let stored = transactions.read_key(key).await?;
                if let Some(stored) = &stored {
                    records.tags.insert(stored.key.org, Some(key.tag()));
                }
                records.keys.insert(key, stored);
            }
            Lookup::Session(id) => {
                let digest = SessionIndex(transactions).find_digest(id).await?;
                let session = match digest {
                    Some(digest) => Sessions(transactions).read(&digest).await?,
                    None => None,
                };
                records.sessions.insert(id, digest.zip(session));
            }
            Lookup::OtherAdmin(org, person) => {
                let other = self.read_other_admin(records, org, person).await?;
                records.other_admins.insert((org, person), other);
            }
        }
        Ok(())
    }

    async fn tag(self, records: &mut ReadRecords, org: OrgId) -> Result<Option<OrgTag>, CommandError> {
        if let Some(tag) = records.tags.get(&org) {
            return Ok(*tag);
        }
        let tag = Orgs(self.0).find_tag(org).await?;
        records.tags.insert(org, tag);
        Ok(tag)
    }

    async fn read_other_admin(
        self,
        records: &mut ReadRecords,
        org: OrgId,
        person: UserId,
    ) -> Result<Option<StoredUser>, CommandError> {
        let Some(tag) = self.tag(records, org).await? else { return Ok(None) };
        let users = Users(self.0);
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
}
