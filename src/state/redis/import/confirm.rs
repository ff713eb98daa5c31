//! Confirmation by replicas: one write after all others, for as many replicas as are configured.
//!
//! A replica that has a write has all that its primary wrote before. So one write is enough for each primary: a single
//! one without a Cluster, and on a Cluster one for every hash slot that has imported records.

use std::collections::BTreeMap;

use super::Importer;
use crate::identity::OrgId;
use crate::key::OrgTag;
use crate::state::KeyExport;
use crate::state::import::ImportError;
use crate::state::redis::client::hash_slot;
use crate::state::redis::directory::{Check, CommitResult};
use crate::state::redis::record_names::{org_slot, orgs_slot};

/// A field of an imported record, to be written once more with the value that it has.
pub struct Confirmation {
    slot: u16,
    field: Field,
}

struct Field {
    record: String,
    name: String,
    value: String,
}

impl Importer<'_> {
    /// Returns the writes after which replicas have all records of these organizations, and these keys; none when no replica
    /// is waited for.
    pub fn confirmations(&self, orgs: &[(OrgId, OrgTag)], keys: &[&KeyExport]) -> Vec<Confirmation> {
        if self.0.shared.settings.durability.replicas == 0 {
            return Vec::new();
        }
        let fields = self.fields_by_slot(orgs, keys).into_iter();
        let mut writes: Vec<_> = fields.map(|(slot, field)| Confirmation { slot, field }).collect();
        if !self.0.client.is_cluster() {
            writes.truncate(1);
        }
        writes
    }

    /// One field in each hash slot that has imported records.
    fn fields_by_slot(&self, orgs: &[(OrgId, OrgTag)], keys: &[&KeyExport]) -> BTreeMap<u16, Field> {
        let names = &self.0.shared.names;
        let mut fields = BTreeMap::new();
        for (org, tag) in orgs {
            let (id, tag) = (org.to_string(), *tag);
            let of_org = Field { record: names.org(tag), name: "id".into(), value: id.clone() };
            let listing = Field { record: names.tags(), name: id, value: tag.as_str().into() };
            fields.entry(org_slot(tag)).or_insert(of_org);
            fields.entry(orgs_slot()).or_insert(listing);
        }
        for (key, digest) in keys.iter().flat_map(|key| key.digests().map(move |digest| (key, digest))) {
            let record = names.digest(digest);
            let slot = hash_slot(&record);
            let value = key.key.id.as_str().into();
            fields.entry(slot).or_insert_with(|| Field { record, name: "key".into(), value });
        }
        fields
    }

    /// Writes a field once more and waits for the configured replicas.
    ///
    /// # Errors
    /// [`ImportError::NotReplicated`] when too few replicas confirmed it in time. A field that is missing or differs was in
    /// conflict with the import; there is nothing to confirm then, which is no error.
    pub async fn confirm(&self, confirmation: &Confirmation) -> Result<(), ImportError> {
        let Confirmation { slot, field } = confirmation;
        let mut transaction = self.0.transaction();
        let record = transaction.record(field.record.clone());
        transaction.check(Check::Equal(record, &field.name, &field.value), ());
        transaction.set_field(record, &field.name, &field.value);
        match self.0.commit(*slot, transaction).await? {
            CommitResult::Written(replicas) => self.0.check_replicated(replicas).map_err(ImportError::NotReplicated),
            CommitResult::Failed(()) => Ok(()),
        }
    }
}
