//! Patches of keys: quota and policy, in one transaction.

use super::check::Check;
use super::commit_error::CommitError;
use super::keys::Keys;
use super::origin::Origin;
use super::record_fields::quota_fields;
use super::standing::BoundingPolicy;
use super::transaction::{Record, Transaction};
use crate::{ChangeError, Key, KeyPatch, OrgPolicy, PolicyChange, PolicyScope};
use domain::clock;
use domain::key::KeyId;
use domain::key::policy::{Field, KeyPolicy};
use domain::quota::Quota;

impl Keys<'_> {
    /// Changes a key that is not revoked.
    pub(super) async fn update(self, id: KeyId, patch: &KeyPatch, origin: Origin<'_>) -> Result<u32, CommitError> {
        let stored = self.require_active(id).await?;
        let bounding = match &patch.policy {
            Some(change) if change.allowed.is_bounded() => Some(BoundingPolicy::read(self.0, id.tag()).await?),
            _ => None,
        };
        let of_org = bounding.as_ref().map(|bounding| bounding.policy).unwrap_or_default();
        let policy = patch.policy.as_ref().map(|change| next_policy(&stored.key, change, &of_org)).transpose()?;
        self.change(&stored, origin, |transaction, record| {
            transaction.allow_oom();
            match patch.quota {
                Field::Keep => {}
                Field::Clear => self.write_quota(transaction, record, &stored.key, None),
                Field::Set(quota) => self.write_quota(transaction, record, &stored.key, Some(quota)),
            }
            if let Some(PolicyChange { allowed: PolicyScope::Unused(since), patch }) = &patch.policy {
                // A use does not change the version of the record.
                transaction.check(Check::UnusedSince(record, *since), ChangeError::InUse(id).into());
                if let Field::Set(disabled) = patch.disabled {
                    transaction.check(Check::Near(record, disabled.at), ChangeError::clock_differs().into());
                }
            }
            if patch.policy.as_ref().is_some_and(|change| matches!(change.patch.disabled, Field::Set(_))) {
                transaction.hset_field(record, "disablings", &(stored.disablings + 1).to_string());
            }
            if let Some(bounding) = &bounding {
                bounding.require(transaction, &self.0.shared.names, CommitError::Conflict);
            }
            match policy {
                None => {}
                Some(None) => transaction.hdel(record, &["policy"]),
                Some(Some(policy)) => transaction.hset_field(record, "policy", &policy.to_json()),
            }
        })
        .await
    }

    /// Writes the own quota of a key, and converts its bucket.
    fn write_quota<F>(self, transaction: &mut Transaction<F>, record: Record, key: &Key, quota: Option<Quota>) {
        match quota {
            Some(quota) => transaction.hset(record, &quota_fields(quota)),
            None => transaction.hdel(record, &["requests", "per", "burst"]),
        }
        let default = self.default_quota();
        let age = clock::now().since(self.0.shared.defaults.load().quota_since);
        transaction.convert_quota(record, default.in_force(key.quota), default.in_force(quota), age);
    }
}

/// The policy that a change makes of that of a key; none of an empty one.
fn next_policy(key: &Key, change: &PolicyChange, of_org: &OrgPolicy) -> Result<Option<Box<KeyPolicy>>, ChangeError> {
    let PolicyChange { patch, allowed } = change;
    let policy = allowed.apply(key.id, patch, key.policy.as_deref(), of_org)?;
    if matches!(*allowed, PolicyScope::Unused(since) if key.created >= since) {
        return Err(ChangeError::InUse(key.id));
    }
    Ok(policy)
}
