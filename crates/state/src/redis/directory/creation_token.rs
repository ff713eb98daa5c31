//! The token that a person needs to create or rotate a key.

use super::check::Check;
use super::record_fields::quota_numbers;
use super::transaction::Transaction;
use super::transactions::Transactions;
use super::users::Users;
use crate::bucket::Bucket;
use domain::identity::UserId;
use domain::key::OrgTag;
use redis_client::CommandError;

/// The token that a person needs to create or rotate a key.
pub(super) struct CreationToken {
    /// Name of the person's record, which has the bucket.
    record: String,
    quota: serde_json::Value,
    /// Microseconds until there is a token, as of the read before the change.
    pub(super) wait_us: u64,
}

impl CreationToken {
    /// The token that a person needs; none for the operator.
    pub(super) async fn find(
        transactions: &Transactions,
        tag: OrgTag,
        person: Option<UserId>,
    ) -> Result<Option<Self>, CommandError> {
        let Some(person) = person else { return Ok(None) };
        let quota = transactions.bounds().key_creation;
        let now = transactions.now();
        let stored = Users(transactions).read_creation_bucket(tag, person).await?;
        let bucket = stored.map_or(Bucket::full(quota, now), |stored| stored.bucket.convert(stored.per_us, quota));
        // The server decides by its own clock; one microsecond stands for "try again now".
        let wait_us = bucket.refill(quota, now).tokens_in_us(quota, 1).max(1);
        let record = transactions.shared.names.user(tag, person);
        Ok(Some(Self { record, quota: quota_numbers(quota), wait_us }))
    }

    /// Takes the token, or fails.
    pub(super) fn take<F>(&self, transaction: &mut Transaction<F>, failure: F) {
        let record = transaction.record(self.record.clone());
        transaction.check(Check::Token(record, &self.quota), failure);
        transaction.take_token(record, &self.quota);
    }
}
