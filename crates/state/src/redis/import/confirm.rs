//! Confirmation by replicas: one write after all others, for as many replicas as are configured.
//!
//! A replica that has a write has all that its primary wrote before. So one write is enough for each primary: a single
//! one without a Cluster, and on a Cluster one for every hash slot that has imported records.

use std::collections::BTreeMap;

use super::Writer;
use crate::KeyExport;
use crate::import::ImportError;
use crate::redis::directory::{ChangeSteps, Check, CommitResult, token_json};
use domain::identity::OrgId;
use domain::key::OrgTag;
use domain::management_token::ManagementToken;
use redis_client::hash_slot;

/// Fields of imported records at one primary, of which the first that has its value is to be written once more: a
/// record that was in conflict with the import is not there.
pub struct Confirmation(Vec<Field>);

struct Field {
    record: String,
    name: String,
    value: String,
}

impl Writer<'_> {
    /// Returns the writes after which replicas have all records of these organizations, these keys, and these tokens;
    /// none when no replica is waited for.
    pub(crate) fn confirmations(
        self,
        orgs: &[(OrgId, OrgTag)],
        keys: &[&KeyExport],
        tokens: &[&ManagementToken],
    ) -> Vec<Confirmation> {
        if self.0.shared.settings.durability.replicas == 0 {
            return Vec::new();
        }
        let fields = self.fields_by_slot(orgs, keys).into_values();
        // All of them: one that was revoked since has another value.
        let of_tokens = tokens.iter().map(|token| Field {
            record: self.0.shared.names.management_tokens(),
            name: token.id.to_string(),
            value: token_json(token),
        });
        if self.0.client.is_cluster() {
            let of_tokens = Confirmation(of_tokens.collect());
            return fields.map(|field| Confirmation(vec![field])).chain([of_tokens]).collect();
        }
        vec![Confirmation(fields.chain(of_tokens).collect())]
    }

    /// One field in each hash slot that has imported records.
    fn fields_by_slot(self, orgs: &[(OrgId, OrgTag)], keys: &[&KeyExport]) -> BTreeMap<u16, Field> {
        let names = &self.0.shared.names;
        let mut fields = BTreeMap::new();
        let mut add = |record: String, name: &str, value: &str| {
            fields.entry(hash_slot(&record)).or_insert_with(|| Field {
                record,
                name: name.into(),
                value: value.into(),
            });
        };
        for (org, tag) in orgs {
            let id = org.to_string();
            add(names.org(*tag), "id", &id);
            add(names.tags(), &id, tag.as_str());
        }
        for key in keys {
            key.digests().for_each(|digest| add(names.digest(digest), "key", key.key.id.as_str()));
        }
        fields
    }

    /// Writes a field once more and waits for the configured replicas.
    ///
    /// # Errors
    /// [`ImportError::NotReplicated`] when too few replicas confirmed it in time. When all fields are missing or
    /// differ, there is nothing to confirm, which is no error.
    pub(crate) async fn confirm(self, confirmation: &Confirmation) -> Result<(), ImportError> {
        for field in &confirmation.0 {
            let (mut transaction, record) = self.0.transaction_on(field.record.clone());
            transaction.check(Check::Equal(record, &field.name, &field.value), ());
            transaction.hset_field(record, &field.name, &field.value);
            if let CommitResult::Written(replicas) = self.0.commit(transaction).await? {
                return ChangeSteps::check_replicated(self.0.shared.settings.durability, replicas)
                    .map_err(ImportError::NotReplicated);
            }
        }
        Ok(())
    }
}
