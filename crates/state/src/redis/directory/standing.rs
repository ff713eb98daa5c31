//! Standing of the person by whose rights a change is made, and the policy that bounds a key: read before the
//! transaction of the change, which requires that they are still as they were read.

use super::check::Check;
use super::transaction::Transaction;
use super::transactions::Transactions;
use crate::OrgPolicy;
use crate::redis::record_codec::Version;
use crate::redis::record_names::RecordNames;
use domain::identity::UserId;
use domain::key::OrgTag;
use redis_client::CommandError;

/// Standing of a person or a service, as it was read.
pub(super) struct Standing {
    pub(super) tag: OrgTag,
    /// The user, and of administrators who suspend their own account another one, with the versions of their records.
    pub(super) users: Vec<(UserId, Version)>,
    /// True when the organization must not be suspended.
    pub(super) is_open: bool,
}

/// The policy of an organization, as it was read.
pub(super) struct BoundingPolicy {
    tag: OrgTag,
    /// As the record has it; none of an empty one.
    json: Option<String>,
    pub(super) policy: OrgPolicy,
}

impl Standing {
    /// Has a transaction require it as it was read.
    pub(super) fn require<F>(&self, transaction: &mut Transaction<F>, names: &RecordNames, failure: impl Fn() -> F) {
        for (user, version) in &self.users {
            let record = transaction.record(names.user(self.tag, *user));
            transaction.check(Check::Equal(record, "version", &String::from_utf8_lossy(version)), failure());
        }
        if self.is_open {
            let org = transaction.record(names.org(self.tag));
            transaction.check(Check::Equal(org, "suspended", "0"), failure());
        }
    }
}

impl BoundingPolicy {
    /// Reads the policy of an organization.
    pub(super) async fn read(transactions: &Transactions, tag: OrgTag) -> Result<Self, CommandError> {
        let json = transactions.read_field(&transactions.shared.names.org(tag), "policy").await?;
        let policy = OrgPolicy::from_record(json.as_deref()).map_err(|_| CommandError::UnexpectedReply)?;
        Ok(Self { tag, json, policy })
    }

    /// Has a transaction require it as it was read.
    pub(super) fn require<F>(&self, transaction: &mut Transaction<F>, names: &RecordNames, failure: F) {
        let org = transaction.record(names.org(self.tag));
        let check = match &self.json {
            Some(json) => Check::Equal(org, "policy", json),
            None => Check::NoField(org, "policy"),
        };
        transaction.check(check, failure);
    }
}
