//! Mutable part of a key, which the lock of its record guards.

use std::sync::Arc;

use crate::bucket::Bucket;
use crate::{DecideRequest, Key, KeyExport, Validity};
use domain::clock::Micros;
use domain::identity::Principal;
use domain::key::KeyDigest;
use domain::key::policy::KeyPolicy;
use domain::quota::Quota;
use domain::refusal::Refusal;

use super::entitlements::{Secrets, UserEntitlements};
use super::key_terms::KeyTerms;
use super::packed_fields::{OptionalTime, PackedQuota};

/// Mutable part of a key.
///
/// - A holder of the lock sees all of a change or none of it.
/// - `bucket` is measured in `quota`.
/// - While the state file lacks some of the usage, the record is `dirty`: it is in the list of dirty
///   keys, or with the writer.
pub(super) struct KeyState {
    /// The digests of a key that was rotated; none: the record's digest is the only one.
    pub(super) secrets: Option<Box<Secrets>>,
    pub(super) revoked: OptionalTime,
    pub(super) entitlements: Arc<UserEntitlements>,
    /// The principal of requests with the key: made at its first use, and kept for the keys that were used last
    /// ([`super::cached_principals`]).
    pub(super) principal: Option<Arc<Principal>>,
    /// Quota and policy of its own; none of nearly all keys.
    pub(super) terms: Option<Box<KeyTerms>>,
    quota: PackedQuota,
    pub(super) bucket: Bucket,
    pub(super) last_used: OptionalTime,
    pub(super) uses: u64,
    pub(super) dirty: bool,
}

/// Usage of a key at one moment: the part that is written back to the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Usage {
    pub(super) bucket: Bucket,
    /// The `per` that the bucket's level is measured in, in microseconds.
    pub(super) per_us: u64,
    pub(super) last_used: Option<Micros>,
    pub(super) uses: u64,
}

impl KeyState {
    /// A key that was just loaded or created.
    pub(super) fn new(
        key: &mut Key,
        secrets: Option<Box<Secrets>>,
        entitlements: Arc<UserEntitlements>,
        (quota, bucket): (Quota, Bucket),
    ) -> Self {
        Self {
            secrets,
            revoked: key.revoked.into(),
            entitlements,
            principal: None,
            terms: KeyTerms::boxed(key.quota, key.policy.take(), None),
            quota: quota.into(),
            bucket,
            last_used: key.last_used.into(),
            uses: key.uses,
            dirty: false,
        }
    }

    /// The effective quota.
    pub(super) fn quota(&self) -> Quota {
        self.quota.into()
    }

    /// Puts another quota in force from now on; the tokens of this moment stay.
    pub(super) fn apply_quota(&mut self, quota: Quota, now: Micros) {
        let old = self.quota();
        // Refilled first: the time until now still counts by the old quota.
        self.bucket = self.bucket.refill(old, now).convert(old.per_micros(), quota);
        self.quota = quota.into();
    }

    /// Authenticates the presented secret; returns the refusal when it does not stand for a user.
    ///
    /// `digest` is that of the record.
    pub(super) fn authenticate(&self, request: DecideRequest<'_>, digest: &KeyDigest) -> Option<Refusal> {
        if self.revoked.get().is_some() {
            return Some(Refusal::Revoked);
        }
        if request.now >= self.secret_valid_until(request.digest, digest) {
            return Some(Refusal::Expired);
        }
        let terms = self.terms.as_deref();
        if let Some(refusal) = terms.and_then(|terms| terms.refusal_of_key(request.now)) {
            return Some(refusal);
        }
        if self.entitlements.removed {
            return Some(Refusal::UserRemoved);
        }
        if self.entitlements.suspended {
            return Some(Refusal::UserSuspended);
        }
        terms.and_then(|terms| terms.refusal_of_address(request))
    }

    /// The key's own quota, in place of the configured one.
    pub(super) fn own_quota(&self) -> Option<Quota> {
        self.terms.as_deref().and_then(|terms| terms.quota)
    }

    /// The key's policy; none when it narrows nothing.
    pub(super) fn policy(&self) -> Option<Box<KeyPolicy>> {
        self.terms.as_deref().and_then(|terms| terms.policy.clone().boxed())
    }

    /// The time until which requests with a secret are admitted: until its end, or the expiry of the key. `presented`
    /// is its digest, and `digest` that of the record.
    pub(super) fn valid_until(&self, presented: &KeyDigest, digest: &KeyDigest) -> Micros {
        let until = self.secret_valid_until(presented, digest);
        self.terms.as_deref().and_then(|terms| terms.policy.expires).map_or(until, |expires| until.min(expires))
    }

    /// The time until which a secret with the digest `presented` is valid; the epoch when it is not. `digest`
    /// is that of the record.
    fn secret_valid_until(&self, presented: &KeyDigest, digest: &KeyDigest) -> Micros {
        match &self.secrets {
            Some(secrets) => secrets.valid_until(presented),
            None if presented == digest => Validity::FOREVER,
            None => Micros(0),
        }
    }

    /// Counts a use and all uses before it; returns false when they are counted already.
    ///
    /// The bucket is charged for all of them at the time of the last one: so it is never fuller than it was.
    pub(super) fn replay(&mut self, time: Micros, number: u64) -> bool {
        // The journal may lack uses in between, which were decided all the same: their tokens are taken as well.
        let Some(missing) = number.checked_sub(self.uses).filter(|missing| *missing > 0) else { return false };
        let quota = self.quota();
        self.bucket = self.bucket.refill(quota, time).charge(quota, missing);
        self.uses = number;
        self.last_used = self.last_used.get().max(Some(time)).into();
        true
    }

    /// The usage of this moment, merged with that of an export: more uses, a later last use, and the emptier bucket.
    pub(super) fn merged_usage(&self, export: &KeyExport, now: Micros) -> Usage {
        let quota = self.quota();
        let theirs = export.bucket_under(quota, now);
        let level = |bucket: Bucket| bucket.refill(quota, now).level;
        let bucket = if level(theirs) < level(self.bucket) { theirs } else { self.bucket };
        Usage {
            bucket,
            per_us: quota.per_micros(),
            last_used: self.last_used.get().max(export.key.last_used),
            uses: self.uses.max(export.key.uses),
        }
    }

    /// The usage of this moment.
    pub(super) fn usage(&self) -> Usage {
        let per_us = self.quota().per_micros();
        Usage { bucket: self.bucket, per_us, last_used: self.last_used.get(), uses: self.uses }
    }
}
