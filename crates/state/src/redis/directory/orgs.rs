//! Changes of organizations.

use super::commit_error::CommitError;
use super::record_fields::org_fields;
use super::records::Directory;
use super::transaction::{Check, CommitResult, Record, Transaction};
use crate::redis::record_names::{org_slot, orgs_slot};
use crate::{ChangeError, LOOK_TAKEN, Org};
use domain::identity::OrgId;

/// Property that no two entries in the list of organizations share.
enum ListCheck {
    Name,
    Look,
    Id,
}

impl Directory {
    /// Creates an organization: first its record, which is found by its tag only, then its name and its place in the
    /// list.
    pub(super) async fn create_org(&self, org: &Org) -> Result<u32, CommitError> {
        let (name, slot, id) = (self.shared.names.org(org.tag), org_slot(org.tag), org.id.to_string());
        let mut transaction = self.transaction();
        let record = transaction.record(name.clone());
        transaction.check(Check::Absent(record), ChangeError::Taken("tag"));
        transaction.init_org(record)?;
        transaction.set(record, &org_fields(org));
        // A record with this id was written by an earlier attempt whose reply was lost.
        if let CommitResult::Failed(taken) = self.commit(slot, transaction).await?
            && self.read_field(slot, &name, "id").await?.as_ref() != Some(&id)
        {
            return Err(taken.into());
        }
        match self.list_org(org).await {
            Err(CommitError::Final(refused)) => {
                let mut transaction = self.transaction();
                let record = transaction.record(name);
                transaction.check(Check::Equal(record, "id", &id), ());
                transaction.delete(record);
                self.commit(slot, transaction).await?;
                Err(refused.into())
            }
            result => result,
        }
    }

    /// Claims the name of an organization, and adds it to the list.
    async fn list_org(&self, org: &Org) -> Result<u32, CommitError> {
        let (names, slot) = (&self.shared.names, orgs_slot());
        let (id, tag, look) = (org.id.to_string(), org.tag.as_str(), domain::names::look(&org.name));
        self.update_look_index().await?;
        let mut transaction = self.transaction();
        let records = [names.names(), names.looks(), names.tags(), names.orgs()];
        let [by_name, looks, tags, list] = records.map(|name| transaction.record(name));
        transaction.check(Check::NoField(by_name, &org.name), ListCheck::Name);
        transaction.check(Check::NoField(looks, &look), ListCheck::Look);
        transaction.check(Check::NoField(tags, &id), ListCheck::Id);
        transaction.set_field(by_name, &org.name, &id);
        transaction.set_field(looks, &look, &id);
        transaction.set_field(tags, &id, tag);
        transaction.append(list, &id);
        match self.commit(slot, transaction).await? {
            CommitResult::Written(replicas) => return Ok(replicas),
            CommitResult::Failed(ListCheck::Name) => {
                if self.read_field(slot, &names.names(), &org.name).await?.as_ref() != Some(&id) {
                    return Err(ChangeError::Taken("name").into());
                }
            }
            CommitResult::Failed(ListCheck::Look) => {
                if self.read_field(slot, &names.looks(), &look).await?.as_ref() != Some(&id) {
                    return Err(ChangeError::Taken(LOOK_TAKEN).into());
                }
            }
            CommitResult::Failed(ListCheck::Id) => {}
        }
        let listed = self.read_field(slot, &names.tags(), &id).await?;
        if listed.as_deref() == Some(tag) {
            // Listed by an earlier attempt whose reply was lost. A write is needed for replicas to confirm.
            return self.rewrite_field(slot, names.tags(), &id, tag).await;
        }
        Err(ChangeError::Taken("id").into())
    }

    /// Writes a field once more with the value that it has, to learn how many replicas have it.
    async fn rewrite_field(&self, slot: u16, name: String, field: &str, value: &str) -> Result<u32, CommitError> {
        let mut transaction = self.transaction();
        let record = transaction.record(name);
        transaction.check(Check::Equal(record, field, value), CommitError::Conflict);
        transaction.set_field(record, field, value);
        self.commit(slot, transaction).await?.into_replicas()
    }

    pub(super) async fn suspend_org(&self, org: OrgId, suspended: bool) -> Result<u32, CommitError> {
        let suspended = u8::from(suspended).to_string();
        self.change_org(org, |transaction, record| transaction.set_field(record, "suspended", &suspended)).await
    }

    pub(super) async fn limit_org(&self, org: OrgId, concurrent: Option<u32>) -> Result<u32, CommitError> {
        self.change_org(org, |transaction, record| match concurrent {
            Some(concurrent) => transaction.set_field(record, "concurrent", &concurrent.to_string()),
            None => transaction.unset(record, &["concurrent"]),
        })
        .await
    }

    async fn change_org(
        &self,
        org: OrgId,
        write: impl FnOnce(&mut Transaction<ChangeError>, Record),
    ) -> Result<u32, CommitError> {
        let tag = self.require_tag(org).await?;
        // Suspensions and lower limits are among them, and all of them rewrite a field.
        let mut transaction = self.withdrawal();
        let record = transaction.record(self.shared.names.org(tag));
        transaction.check(Check::Equal(record, "id", &org.to_string()), ChangeError::NoOrg(org));
        write(&mut transaction, record);
        transaction.replace_version(record)?;
        self.commit(org_slot(tag), transaction).await?.into_replicas()
    }
}
