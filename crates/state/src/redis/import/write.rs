//! Writes of an import: whole batches, each by one script.

use super::Importer;
use crate::import::{DigestClaim, ImportError, KeyWrite, UserWrite};
use crate::redis::directory::{
    Check, CommitError, KeyList, Transaction, UserIndex, key_fields, org_fields, user_fields,
};
use crate::redis::format;
use crate::redis::record_codec::new_version;
use crate::redis::record_names::hex;
use crate::{KeyExport, Org};
use domain::clock;
use domain::key::OrgTag;
use domain::names::look;
use domain::quota::Quota;

impl Importer<'_> {
    /// Creates the record of an organization. It is found by its tag only until [`Importer::list_orgs`] lists it.
    pub async fn create_org(&self, org: &Org) -> Result<(), ImportError> {
        let (mut transaction, record) = self.0.transaction_on(self.0.shared.names.org(org.tag));
        transaction.check(Check::Absent(record), CommitError::Conflict);
        transaction.init_org(record)?;
        transaction.hset(record, &org_fields(org));
        self.commit(transaction).await
    }

    /// Adds organizations to the list of all, in this order, and claims their names.
    pub async fn list_orgs(&self, orgs: impl Iterator<Item = &Org>) -> Result<(), ImportError> {
        let names = &self.0.shared.names;
        let records = [names.format(), names.names(), names.looks(), names.tags(), names.orgs()];
        let mut transaction = self.0.transaction();
        let [format, by_name, looks, tags, list] = transaction.records(records);
        transaction.hset_field(format, format::FIELD, format::VERSION);
        let mut is_empty = true;
        for org in orgs {
            is_empty = false;
            let id = org.id.to_string();
            transaction.check(Check::NoField(by_name, &org.name), CommitError::Conflict);
            transaction.check(Check::NoField(tags, &id), CommitError::Conflict);
            transaction.hset_field(by_name, &org.name, &id);
            // Organizations that look the same exist already: they stay.
            transaction.hset_field(looks, &look(&org.name), &id);
            transaction.hset_field(tags, &id, org.tag.as_str());
            transaction.rpush(list, &id);
        }
        if is_empty {
            return Ok(());
        }
        self.commit(transaction).await
    }

    /// Writes users of an organization, in this order. The email addresses of new ones that are not removed are
    /// claimed.
    pub async fn write_users(
        &self,
        tag: OrgTag,
        writes: impl Iterator<Item = UserWrite<'_>>,
    ) -> Result<(), ImportError> {
        let names = &self.0.shared.names;
        let mut transaction = self.0.transaction();
        let [org, emails, list] = transaction.records([names.org(tag), names.emails(tag), names.users(tag)]);
        transaction.check(Check::Present(org), CommitError::Conflict);
        for UserWrite { user, create, creation } in writes {
            let id = user.id.to_string();
            let record = transaction.record(names.user(tag, user.id));
            if create {
                UserIndex(self.0).add(user).await?;
                transaction.check(Check::Absent(record), CommitError::Conflict);
                if user.removed.is_none() {
                    transaction.check(Check::NoField(emails, &user.email), CommitError::Conflict);
                    transaction.hset_field(emails, &user.email, &id);
                }
                transaction.hset(record, &user_fields(user));
                transaction.hset_field(record, "version", &new_version()?);
                transaction.rpush(list, &id);
            } else {
                transaction.check(Check::Present(record), CommitError::Conflict);
            }
            match creation {
                // As it is: a new user has no other one that could be emptier.
                Some(creation) if create => transaction.set_tokens(record, &creation),
                Some(creation) => transaction.limit_tokens(record, &creation, self.key_creation()),
                None => {}
            }
        }
        self.commit(transaction).await
    }

    /// Claims a digest that no key had when it was looked at.
    pub async fn claim_digest(&self, claim: DigestClaim) -> Result<(), ImportError> {
        let (mut transaction, record) = self.0.transaction_on(self.0.shared.names.digest(&claim.digest));
        match claim.abandoned_by {
            None => transaction.check(Check::Absent(record), CommitError::Conflict),
            Some(by) => transaction.check(Check::Equal(record, "key", by.as_str()), CommitError::Conflict),
        }
        // The time of the claim is now: it must not count as abandoned before the key is written.
        let claimed = [("key", claim.key.as_str().to_owned()), ("at", clock::now().0.to_string())];
        transaction.hset(record, &claimed);
        self.commit(transaction).await
    }

    /// Writes keys of one organization, whose users exist.
    pub async fn write_keys(&self, writes: &[KeyWrite<'_>]) -> Result<(), ImportError> {
        let mut transaction = self.0.transaction();
        for write in writes {
            match *write {
                KeyWrite::Create(export) => self.create_key(&mut transaction, export)?,
                KeyWrite::Merge { export, own } => self.merge(&mut transaction, export, own),
            }
        }
        if transaction.is_empty() {
            return Ok(());
        }
        self.commit(transaction).await
    }

    fn create_key(&self, transaction: &mut Transaction<CommitError>, export: &KeyExport) -> Result<(), ImportError> {
        let KeyExport { key, digest, previous, bucket, quota, .. } = export;
        let record = transaction.record(self.0.shared.names.key(key.id));
        let used = key.last_used.unwrap_or_default();
        let mut fields = key_fields(key, digest);
        fields.extend(previous.map(|previous| ("previous", hex(previous.as_bytes()))));
        transaction.check(Check::Absent(record), CommitError::Conflict);
        transaction.init_key(record, (*bucket, *quota), key.uses, used)?;
        transaction.hset(record, &fields);
        KeyList(self.0).add(transaction, key);
        Ok(())
    }

    fn merge(&self, transaction: &mut Transaction<CommitError>, export: &KeyExport, own: Option<Quota>) {
        let record = transaction.record(self.0.shared.names.key(export.key.id));
        let age = clock::now().since(self.0.shared.defaults.load().quota_since);
        transaction.check(Check::Present(record), CommitError::Conflict);
        transaction.merge_usage(record, export, self.quota().in_force(own), age);
    }

    /// Commits without waiting for replicas: those are waited for once, at the end.
    async fn commit(&self, transaction: Transaction<CommitError>) -> Result<(), ImportError> {
        self.0.commit_without_replicas(transaction).await?.into_replicas()?;
        Ok(())
    }
}
