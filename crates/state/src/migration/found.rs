//! A record of the file, as it was found on the target.

use super::difference::conflict;
use super::report::Mismatch;
use crate::import::DigestClaim;
use crate::{Change, Org, StateRecord};
use domain::clock::Micros;

/// A record of the file, as it was found on the target. Without any of these it is there and equal.
#[derive(Default)]
pub(super) struct Found {
    /// It is absent, and is created.
    pub(super) is_absent: bool,
    /// The organization as it is listed, where the list of all lacks it.
    pub(super) unlisted: Option<Org>,
    /// A token that has expired, which is not created.
    pub(super) is_expired: bool,
    /// The time at which a token was revoked with the token that has made it. It is created as revoked.
    pub(super) revoked: Option<Micros>,
    /// Digests of the key that no key has. They are added to a key in conflict, too, unless it is another one.
    pub(super) claims: Vec<DigestClaim>,
    /// Withdrawals that the target lacks.
    pub(super) withdrawals: Vec<Change>,
    /// The difference for which the record stays as it is on the target, but for withdrawals.
    pub(super) conflict: Option<Mismatch>,
}

impl Found {
    pub(super) fn absent() -> Self {
        Self { is_absent: true, ..Self::default() }
    }

    pub(super) fn conflict(mismatch: Mismatch) -> Self {
        Self { conflict: Some(mismatch), ..Self::default() }
    }

    /// Returns whether there is something to write.
    pub(super) fn has_gap(&self) -> bool {
        self.is_absent || self.unlisted.is_some() || !self.claims.is_empty() || !self.withdrawals.is_empty()
    }

    /// Compares a record with the one that the target has.
    pub(super) fn compare(record: &StateRecord, stored: &StateRecord) -> Self {
        let (fields, withdrawals) = conflict(record, stored);
        let conflict = (!fields.is_empty()).then_some(Mismatch::Differs(fields));
        Self { withdrawals, conflict, ..Self::default() }
    }
}
