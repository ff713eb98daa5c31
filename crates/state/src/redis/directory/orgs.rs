//! Organizations: their records, and the list, the tags, the names and the looks of all.
//!
//! - Looks ([`domain::names::looks`]): no organization is created whose name looks like that of another one. They
//!   depend on the version of Unicode. With another one, those of all organizations are added once, by the first
//!   gateway that creates an organization. Those that look the same already stay; one of them is in the index.

use redis::cmd;

use super::check::Check;
use super::commit_error::CommitError;
use super::idempotency::IdempotencyRecords;
use super::origin::Origin;
use super::read_records::ReadRecords;
use super::record_fields::org_fields;
use super::transaction::CommitResult;
use super::transactions::{Transactions, parse_id, read_each};
use crate::redis::format;
use crate::redis::record_codec::StoredOrg;
use crate::{Change, ChangeError, LOOK_TAKEN, Org, OrgPatch};
use domain::identity::OrgId;
use domain::key::OrgTag;
use domain::names::{LOOK_VERSION, looks as looks_of};
use domain::page::Page;
use redis_client::CommandError;

/// Looks that one command adds.
const LOOKS_PER_COMMAND: usize = 500;

/// Organizations, over the transactions of one thread.
#[derive(Clone, Copy)]
pub(crate) struct Orgs<'a>(pub(crate) &'a Transactions);

/// Check of a new entry in the list of organizations, most of them of a property that no two entries share.
enum ListCheck {
    /// The request of the change is not recorded.
    NotRecorded,
    Name,
    Look,
    Id,
}

impl Orgs<'_> {
    /// Creates an organization: first its record, which is found by its tag only, then its name and its place in the
    /// list.
    pub(super) async fn create(self, org: &Org, origin: Origin<'_>) -> Result<u32, CommitError> {
        let name = self.0.shared.names.org(org.tag);
        let id = org.id.to_string();
        let (mut transaction, record) = self.0.transaction_on(name.clone());
        transaction.check(Check::Absent(record), ChangeError::Taken("tag"));
        transaction.init_org(record)?;
        transaction.hset(record, &org_fields(org));
        // A record with this id was written by an earlier attempt whose reply was lost.
        if let CommitResult::Failed(taken) = self.0.commit(transaction).await?
            && self.0.read_field(&name, "id").await?.as_ref() != Some(&id)
        {
            return Err(taken.into());
        }
        match self.add_to_list(org, origin).await {
            Err(CommitError::Final(refused)) => {
                let (mut transaction, record) = self.0.transaction_on(name);
                transaction.check(Check::Equal(record, "id", &id), ());
                transaction.del(record);
                self.0.commit(transaction).await?;
                Err(refused.into())
            }
            result => result,
        }
    }

    /// Claims the name of an organization, and adds it to the list.
    async fn add_to_list(self, org: &Org, origin: Origin<'_>) -> Result<u32, CommitError> {
        let names = &self.0.shared.names;
        let id = org.id.to_string();
        let tag = org.tag.as_str();
        let own_looks = looks_of(&org.name);
        self.update_look_index().await?;
        let mut transaction = self.0.transaction();
        origin.write_record(&mut transaction, names, || ListCheck::NotRecorded);
        let records = [names.format(), names.names(), names.looks(), names.tags(), names.orgs()];
        let [format, by_name, looks, tags, list] = transaction.records(records);
        transaction.check(Check::NoField(by_name, &org.name), ListCheck::Name);
        for look in &own_looks {
            transaction.check(Check::NoField(looks, look), ListCheck::Look);
            transaction.hset_field(looks, look, &id);
        }
        transaction.check(Check::NoField(tags, &id), ListCheck::Id);
        transaction.hset_field(format, format::FIELD, format::VERSION);
        transaction.hset_field(by_name, &org.name, &id);
        transaction.hset_field(tags, &id, tag);
        transaction.rpush(list, &id);
        match self.0.commit(transaction).await? {
            CommitResult::Written(replicas) => return Ok(replicas),
            CommitResult::Failed(ListCheck::NotRecorded) => return self.resolve_recorded(origin).await,
            CommitResult::Failed(ListCheck::Name) => {
                if self.0.read_field(&names.names(), &org.name).await?.as_ref() != Some(&id) {
                    return Err(ChangeError::Taken("name").into());
                }
            }
            CommitResult::Failed(ListCheck::Look) => self.require_looks(&own_looks, &id).await?,
            CommitResult::Failed(ListCheck::Id) => {}
        }
        if self.0.read_field(&names.tags(), &id).await?.as_deref() != Some(tag) {
            return Err(ChangeError::Taken("id").into());
        }
        // Listed by an earlier attempt whose reply was lost. A write is needed for replicas to confirm.
        let (mut transaction, record) = self.0.transaction_on(names.tags());
        transaction.check(Check::Equal(record, &id, tag), CommitError::Conflict);
        transaction.hset_field(record, &id, tag);
        self.0.commit(transaction).await?.into_replicas()
    }

    /// The result of a creation whose request was recorded meanwhile; else the token's grant was taken away, and the
    /// next attempt says so.
    async fn resolve_recorded(self, origin: Origin<'_>) -> Result<u32, CommitError> {
        let Some(once) = origin.once else { return Err(CommitError::Conflict) };
        IdempotencyRecords(self.0).resolve(once, origin.mark).await?.ok_or(CommitError::Conflict)
    }

    /// Requires that an organization has these looks already: an earlier attempt whose reply was lost wrote them.
    async fn require_looks(self, own: &[String], id: &str) -> Result<(), CommitError> {
        for look in own {
            if self.0.read_field(&self.0.shared.names.looks(), look).await?.as_deref() != Some(id) {
                return Err(ChangeError::Taken(LOOK_TAKEN).into());
            }
        }
        Ok(())
    }

    /// Changes an organization, as it was planned. Suspensions and lower limits are among the changes, and all of them
    /// rewrite a field: they are made also while the memory is full.
    pub(super) async fn update(
        self,
        next: &Org,
        change: &Change,
        records: &ReadRecords,
        origin: Origin<'_>,
    ) -> Result<u32, CommitError> {
        let StoredOrg { org, version, suspensions } = records.stored_org(next.id)?;
        origin.check_etag(|| org.etag(), version)?;
        let mut transaction = self.0.transaction();
        transaction.allow_oom();
        origin.write_record(&mut transaction, &self.0.shared.names, || CommitError::Conflict);
        records.require(&mut transaction, &self.0.shared.names, None, || CommitError::Conflict);
        let record = transaction.record(self.0.shared.names.org(org.tag));
        transaction.replace_fields(record, &org_fields(org), &org_fields(next));
        if let Change::UpdateOrg { patch: OrgPatch { suspended: Some(true), .. }, .. } = change {
            transaction.hset_field(record, "suspensions", &(suspensions + 1).to_string());
        }
        transaction.replace_version(record, &origin.next_version()?);
        self.0.commit(transaction).await?.into_replicas()
    }

    /// Adds the organizations that have no looks of this version yet. May be done by several gateways at the same time.
    pub(super) async fn update_look_index(self) -> Result<(), CommandError> {
        let done = self.0.shared.names.looks_indexed();
        let version: Option<String> = self.0.client.query(cmd("GET").arg(&done)).await?;
        if version.as_deref() == Some(LOOK_VERSION) {
            return Ok(());
        }
        for part in self.list().await?.chunks(LOOKS_PER_COMMAND) {
            let mut write = cmd("HSET");
            write.arg(self.0.shared.names.looks());
            for org in part {
                for look in looks_of(&org.name) {
                    write.arg(look).arg(org.id.to_string());
                }
            }
            self.0.client.query::<()>(&write).await?;
        }
        self.0.client.query(cmd("SET").arg(&done).arg(LOOK_VERSION)).await
    }

    /// All organizations, in the order of their creation.
    pub(crate) async fn list(self) -> Result<Vec<Org>, CommandError> {
        let ids: Vec<OrgId> = self.0.read_list(&self.0.shared.names.orgs()).await?;
        read_each(ids.into_iter().map(async |id| self.find(id).await)).await
    }

    /// Some organizations. See [`crate::State::page_of_orgs`].
    pub(crate) async fn page(self, from: u64, limit: usize) -> Result<Page<Org, u64>, CommandError> {
        let Page { items, next } = self.0.read_page(&self.0.shared.names.orgs(), from, limit).await?;
        let orgs = read_each(items.into_iter().map(async |id| self.find(id).await)).await?;
        Ok(Page { items: orgs, next })
    }

    /// One organization.
    pub(crate) async fn find(self, id: OrgId) -> Result<Option<Org>, CommandError> {
        match self.find_tag(id).await? {
            Some(tag) => self.0.read_org(tag).await,
            None => Ok(None),
        }
    }

    /// The tag of an organization.
    pub(crate) async fn find_tag(self, org: OrgId) -> Result<Option<OrgTag>, CommandError> {
        self.0.read_field(&self.0.shared.names.tags(), &org.to_string()).await?.map(parse_id).transpose()
    }

    /// The tag of an organization, for a change that needs one.
    pub(super) async fn require_tag(self, org: OrgId) -> Result<OrgTag, CommitError> {
        Ok(self.find_tag(org).await?.ok_or(ChangeError::NoOrg(org))?)
    }

    /// The organization with a name.
    pub(crate) async fn find_by_name(self, name: &str) -> Result<Option<Org>, CommandError> {
        match self.0.read_field(&self.0.shared.names.names(), name).await? {
            Some(id) => self.find(parse_id(id)?).await,
            None => Ok(None),
        }
    }
}
