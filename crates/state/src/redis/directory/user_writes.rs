//! Writes of a patch of a user.

use super::check::Check;
use super::commit_error::CommitError;
use super::record_fields::{OPERATOR, SUSPENDED_BY, joined, voucher_fields};
use super::transaction::{Record, Transaction};
use crate::redis::record_codec::StoredUser;
use crate::{Permitted, UserPatch};
use domain::key::policy::Field;

/// Writes the suspension that a patch makes or ends. The first of several suspensions stands; the write is repeated all
/// the same, for replicas to confirm.
pub(super) fn write_suspension(
    transaction: &mut Transaction<CommitError>,
    record: Record,
    patch: &UserPatch,
    stored: &StoredUser,
) {
    match patch.suspended {
        Field::Keep => {}
        Field::Clear => {
            if !patch.by_operator {
                // The operator may have suspended the user since the record was read.
                transaction.check(Check::NoField(record, SUSPENDED_BY), CommitError::Conflict);
            }
            transaction.hdel(record, &["suspended", SUSPENDED_BY]);
        }
        Field::Set(at) => {
            let at = stored.user.suspended.unwrap_or(at).0.to_string();
            let number = (stored.suspensions + 1).to_string();
            // The number is that of the next suspension only of the record that was read.
            let version = String::from_utf8_lossy(&stored.version);
            transaction.check(Check::Equal(record, "version", &version), CommitError::Conflict);
            transaction.hset(record, &[("suspended", at), ("suspensions", number)]);
            if patch.by_operator {
                transaction.hset_field(record, SUSPENDED_BY, OPERATOR);
            }
        }
    }
}

/// Writes the permissions of a user, and the provider that vouches for them.
pub(super) fn write_permitted<F>(transaction: &mut Transaction<F>, record: Record, permitted: &Permitted) {
    transaction.hset_field(record, "permissions", &joined(&permitted.permissions));
    transaction.hdel(record, &["withdrawn"]);
    permitted.vouched_by.iter().for_each(|voucher| transaction.hset(record, &voucher_fields(voucher)));
}
