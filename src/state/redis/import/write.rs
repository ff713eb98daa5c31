//! Writes of an import: whole batches, each by one script.

use std::collections::HashMap;

use super::{ImportError, Importer, KeyVersion, Users};
use crate::clock::{self, Micros};
use crate::identity::UserId;
use crate::key::{KeyDigest, KeyId, OrgTag};
use crate::state::redis::directory::changes::keys::fields as key_fields;
use crate::state::redis::directory::changes::orgs::{fields as org_fields, written};
use crate::state::redis::directory::changes::users::fields as user_fields;
use crate::state::redis::directory::changes::{Transaction, joined, version};
use crate::state::redis::record_names;
use crate::state::{KeyExport, Org, User};

/// A digest to be claimed for a key.
#[derive(Clone, Copy)]
pub struct DigestClaim {
    /// The digest.
    pub digest: KeyDigest,
    /// The key that claims it.
    pub key: KeyId,
    /// The key that abandoned the digest; none when no key has claimed it before.
    pub abandoned_by: Option<KeyId>,
}

/// A write to a key's record.
#[derive(Clone, Copy)]
pub enum KeyWrite<'a> {
    /// Creates the record, with the permissions of its user, and adds it to the lists.
    Create(&'a KeyExport),
    /// Replaces uses and bucket, when the record has this version and fewer uses still.
    CatchUp {
        /// The uses and the bucket to take over.
        export: &'a KeyExport,
        /// The version of the record when it was read.
        version: KeyVersion,
        /// Last Used of the record when it was read; the later of both times stays.
        last_used: Option<Micros>,
    },
}

impl Importer<'_> {
    /// Creates the record of an organization. It is found by its tag only until [`Importer::list_orgs`] lists it.
    pub async fn create_org(&self, org: &Org) -> Result<(), ImportError> {
        let mut transaction = self.0.transaction();
        let record = transaction.record(self.0.shared.record_names.org(org.tag));
        transaction.check(("absent", record));
        transaction.write(("slots", record, version()?));
        transaction.set(record, &org_fields(org));
        self.commit(record_names::hash_slot(org.tag.as_str()), &transaction).await
    }

    /// Adds organizations to the list of all, in this order, and claims their names.
    pub async fn list_orgs(&self, orgs: impl Iterator<Item = &Org>) -> Result<(), ImportError> {
        let record_names = &self.0.shared.record_names;
        let names = [record_names.names(), record_names.tags(), record_names.orgs()];
        let mut transaction = self.0.transaction();
        let [names, tags, list] = names.map(|name| transaction.record(name));
        for org in orgs {
            let id = org.id.to_string();
            transaction.check(("none", names, &org.name));
            transaction.check(("none", tags, &id));
            transaction.write(("set", names, &org.name, &id));
            transaction.write(("set", tags, &id, org.tag.as_str()));
            transaction.write(("append", list, &id));
        }
        self.commit(record_names::orgs_slot(), &transaction).await
    }

    /// Creates users of an organization, in this order, and claims the email addresses of those that are not removed.
    pub async fn create_users(&self, tag: OrgTag, users: impl Iterator<Item = &User>) -> Result<(), ImportError> {
        let record_names = &self.0.shared.record_names;
        let names = [record_names.org(tag), record_names.emails(tag), record_names.users(tag)];
        let mut transaction = self.0.transaction();
        let [org, emails, list] = names.map(|name| transaction.record(name));
        transaction.check(("present", org));
        for user in users {
            let (id, record) = (user.id.to_string(), transaction.record(record_names.user(tag, user.id)));
            transaction.check(("absent", record));
            if user.removed.is_none() {
                transaction.check(("none", emails, &user.email));
                transaction.write(("set", emails, &user.email, &id));
            }
            transaction.set(record, &user_fields(user));
            transaction.write(("append", list, &id));
        }
        self.commit(record_names::hash_slot(tag.as_str()), &transaction).await
    }

    /// Claims a digest that no key had when it was looked at.
    pub async fn claim_digest(&self, claim: DigestClaim) -> Result<(), ImportError> {
        let name = self.0.shared.record_names.digest(&claim.digest);
        let slot = record_names::hash_slot(&name);
        let mut transaction = self.0.transaction();
        let record = transaction.record(name);
        match claim.abandoned_by {
            None => transaction.check(("absent", record)),
            Some(by) => transaction.check(("equal", record, "key", by.as_str())),
        }
        // The time of the claim is now: it must not count as abandoned before the key is written.
        transaction.write(("set", record, "key", claim.key.as_str(), "at", clock::now().0.to_string()));
        self.commit(slot, &transaction).await
    }

    /// Writes keys of one organization, when the users of the new ones are as in `users` still.
    pub async fn write_keys(&self, tag: OrgTag, writes: &[KeyWrite<'_>], users: &Users) -> Result<(), ImportError> {
        let mut transaction = self.0.transaction();
        self.check_users(&mut transaction, writes, users);
        for write in writes {
            match *write {
                KeyWrite::Create(export) => {
                    let user = users.get(&export.key.user).ok_or(ImportError::Conflict)?;
                    self.create_key(&mut transaction, export, user)?;
                }
                KeyWrite::CatchUp { export, version, last_used } => {
                    self.catch_up(&mut transaction, export, version, last_used)?;
                }
            }
        }
        if transaction.is_empty() {
            return Ok(());
        }
        self.commit(record_names::hash_slot(tag.as_str()), &transaction).await
    }

    fn check_users(&self, transaction: &mut Transaction, writes: &[KeyWrite<'_>], users: &Users) {
        let new = writes.iter().filter_map(|write| match write {
            KeyWrite::Create(export) => Some((export.key.user, export.key.id)),
            KeyWrite::CatchUp { .. } => None,
        });
        let owners: HashMap<UserId, KeyId> = new.collect();
        for (id, key) in owners {
            let Some(user) = users.get(&id) else { continue };
            let record = transaction.record(self.0.shared.record_names.user(key.tag(), id));
            transaction.check(("equal", record, "permissions", joined(&user.permissions)));
            match user.removed {
                None => transaction.check(("none", record, "removed")),
                Some(at) => transaction.check(("equal", record, "removed", at.0.to_string())),
            }
        }
    }

    fn create_key(&self, transaction: &mut Transaction, export: &KeyExport, user: &User) -> Result<(), ImportError> {
        let KeyExport { key, digest, previous, bucket, per_us, .. } = export;
        let (record_names, tag, id) = (&self.0.shared.record_names, key.id.tag(), key.id.as_str());
        let names = [record_names.key(key.id), record_names.keys(tag), record_names.keys_of(tag, user.id)];
        let [record, list, keys_of] = names.map(|name| transaction.record(name));
        let used = key.last_used.unwrap_or_default().0;
        let mut fields = key_fields(key, digest, &user.permissions);
        fields.extend(previous.map(|previous| ("previous", record_names::hex(previous.as_bytes()))));
        fields.extend(user.removed.map(|at| ("removed", at.0.to_string())));
        transaction.check(("absent", record));
        transaction.write(("bucket", record, version()?, bucket.level, bucket.at.0, per_us, key.uses, used));
        transaction.set(record, &fields);
        transaction.write(("append", list, id));
        transaction.write(("add", keys_of, id));
        Ok(())
    }

    fn catch_up(
        &self,
        transaction: &mut Transaction,
        export: &KeyExport,
        current: KeyVersion,
        last_used: Option<Micros>,
    ) -> Result<(), ImportError> {
        let KeyExport { key, bucket, per_us, .. } = export;
        let record = transaction.record(self.0.shared.record_names.key(key.id));
        let used = key.last_used.max(last_used).unwrap_or_default().0;
        transaction.check(("version", record, String::from_utf8_lossy(&current.0)));
        transaction.check(("behind", record, key.uses));
        transaction.write(("bucket", record, version()?, bucket.level, bucket.at.0, per_us, key.uses, used));
        Ok(())
    }

    /// Commits without waiting for replicas: those are waited for once, at the end.
    async fn commit(&self, slot: u16, transaction: &Transaction) -> Result<(), ImportError> {
        written(self.0.commit_at_once(slot, transaction).await?)?;
        Ok(())
    }
}
