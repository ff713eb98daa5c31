//! Writes of an import: whole batches, each by one script.

use super::directory::{
    Check, CommitError, KeyList, ManagementTokens, Spendings, Transaction, Transactions, UserIndex, add_key_actors,
    key_fields, org_fields, user_fields,
};
use super::format;
use super::record_codec::new_version;
use super::record_names::hex;
use crate::import::{DigestClaim, Import, ImportError};
use crate::{CreationBucket, FederationRule, KeyExport, Org, Unavailable, User};
use domain::key::OrgTag;
use domain::names::looks as looks_of;
use redis_client::CommandError;

mod confirm;

pub use confirm::Confirmation;

/// Writes of imported records, over the transactions of one thread.
#[derive(Clone, Copy)]
pub(crate) struct Writer<'a>(pub(crate) &'a Transactions);

impl Writer<'_> {
    /// Writes records of one hash slot, all or none. See [`Import`].
    pub(crate) async fn write(self, imports: &[Import]) -> Result<(), ImportError> {
        if imports.is_empty() {
            return Ok(());
        }
        let mut transaction = self.0.transaction();
        for import in imports {
            match import {
                Import::Org(org) => self.create_org(&mut transaction, org)?,
                Import::User { tag, user, creation } => {
                    UserIndex(self.0).add(user).await?;
                    self.create_user(&mut transaction, *tag, user, creation.as_ref())?;
                }
                Import::Key(export) => self.create_key(&mut transaction, export)?,
                Import::Digest(claim) => self.claim(&mut transaction, claim),
                Import::Rule { tag, rule } => self.create_rule(&mut transaction, *tag, rule),
                // Redis has its own time.
                Import::Token { token, now: _ } => {
                    ManagementTokens(self.0).add_import(&mut transaction, token);
                }
                Import::Spent { tag, spent } => {
                    let record = transaction.record(Spendings(self.0).name(*tag, spent.subject));
                    transaction.check(Check::Present(record), CommitError::Conflict);
                    transaction.set_spent(record, spent.start, spent.units);
                }
            }
        }
        self.commit(transaction).await
    }

    fn create_org(self, transaction: &mut Transaction<CommitError>, org: &Org) -> Result<(), ImportError> {
        let record = transaction.record(self.0.shared.names.org(org.tag));
        transaction.check(Check::Absent(record), CommitError::Conflict);
        transaction.init_org(record)?;
        transaction.hset(record, &org_fields(org));
        Ok(())
    }

    /// Adds organizations to the list of all, in this order, and claims their names.
    pub(crate) async fn list_orgs(self, orgs: impl Iterator<Item = &Org>) -> Result<(), ImportError> {
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
            for look in looks_of(&org.name) {
                transaction.hset_field(looks, &look, &id);
            }
            transaction.hset_field(tags, &id, org.tag.as_str());
            transaction.rpush(list, &id);
        }
        if is_empty {
            return Ok(());
        }
        self.commit(transaction).await
    }

    fn create_user(
        self,
        transaction: &mut Transaction<CommitError>,
        tag: OrgTag,
        user: &User,
        creation: Option<&CreationBucket>,
    ) -> Result<(), ImportError> {
        let names = &self.0.shared.names;
        let id = user.id.to_string();
        let records = [names.org(tag), names.emails(tag), names.users(tag), names.user(tag, user.id)];
        let [org, emails, list, record] = transaction.records(records);
        transaction.check(Check::Present(org), CommitError::Conflict);
        transaction.check(Check::Absent(record), CommitError::Conflict);
        if user.removed.is_none() {
            transaction.check(Check::NoField(emails, &user.email), CommitError::Conflict);
            transaction.hset_field(emails, &user.email, &id);
        }
        transaction.hset(record, &user_fields(user));
        transaction.hset_field(record, "version", &new_version()?);
        transaction.rpush(list, &id);
        creation.into_iter().for_each(|creation| transaction.set_tokens(record, creation));
        Ok(())
    }

    fn create_key(self, transaction: &mut Transaction<CommitError>, export: &KeyExport) -> Result<(), ImportError> {
        let KeyExport { key, digest, previous, bucket, quota, actors, .. } = export;
        let record = transaction.record(self.0.shared.names.key(key.id));
        let used = key.last_used.unwrap_or_default();
        let mut fields = key_fields(key, digest);
        fields.extend(previous.map(|previous| ("previous", hex(previous.as_bytes()))));
        transaction.check(Check::Absent(record), CommitError::Conflict);
        transaction.init_key(record, (*bucket, *quota), key.uses, used)?;
        transaction.hset(record, &fields);
        KeyList(self.0).add(transaction, key);
        add_key_actors(transaction, &self.0.shared.names, key.id, actors);
        Ok(())
    }

    fn create_rule(self, transaction: &mut Transaction<CommitError>, tag: OrgTag, rule: &FederationRule) {
        let names = &self.0.shared.names;
        let [rules, owner] = transaction.records([names.federation_rules(tag), names.user(tag, rule.user)]);
        transaction.check(Check::Present(owner), CommitError::Conflict);
        transaction.check(Check::NoField(rules, &rule.name), CommitError::Conflict);
        transaction.hset_field(rules, &rule.name, &rule.to_json());
    }

    fn claim(self, transaction: &mut Transaction<CommitError>, claim: &DigestClaim) {
        let record = transaction.record(self.0.shared.names.digest(&claim.digest));
        match &claim.abandoned_by {
            None => transaction.check(Check::Absent(record), CommitError::Conflict),
            Some(by) => transaction.check(Check::Equal(record, "key", by.as_str()), CommitError::Conflict),
        }
        // The time of the claim is now: it must not count as abandoned before the key is written.
        let claimed = [("key", claim.key.as_str().to_owned()), ("at", self.0.now().0.to_string())];
        transaction.hset(record, &claimed);
    }

    /// Commits without waiting for replicas: those are waited for once, at the end.
    async fn commit(self, transaction: Transaction<CommitError>) -> Result<(), ImportError> {
        self.0.commit_without_replicas(transaction).await?.into_replicas()?;
        Ok(())
    }
}

impl From<CommandError> for ImportError {
    fn from(failure: CommandError) -> Self {
        Self::Unavailable { reason: Unavailable::from(&failure), failure: Box::new(failure) }
    }
}

impl From<CommitError> for ImportError {
    fn from(error: CommitError) -> Self {
        match error {
            CommitError::Final(error) => Self::NotReplicated(error),
            CommitError::Command(failure) => failure.into(),
            // Without randomness there is no version for the record: the caller tries again, as after a conflict.
            CommitError::Conflict | CommitError::Randomness(_) => Self::Conflict,
        }
    }
}

impl From<getrandom::Error> for ImportError {
    fn from(_: getrandom::Error) -> Self {
        Self::Conflict
    }
}
