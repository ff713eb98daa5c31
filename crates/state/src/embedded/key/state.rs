//! Parts of a key record: its mutable part, which the lock of the record guards, and what that consists of.
//!
//! Fields are in half of the bytes of their types where that is possible: a state may have millions of keys.

use std::sync::Arc;
use std::time::Duration;

use crate::bucket::Bucket;
use crate::limit_plans::smaller;
use crate::{DecideRequest, GivenPlan, Key, KeyActors, KeyExport, LimitsInForce, User, Validity};
use domain::budget::{Budget, OwnBudget};
use domain::clock::Micros;
use domain::identity::{AuthMethod, Permission, Principal, PrincipalHeaders, UserId};
use domain::key::policy::KeyPolicy;
use domain::key::{KeyDigest, KeyId};
use domain::plan_name::PlanName;
use domain::quota::{Quota, SlotStatus};
use domain::refusal::Refusal;

use super::super::JournaledUse;
use super::super::budgets::{BudgetMeter, Budgets};
use super::slots::{KeySlots, OrgRecord};

/// Mutable part of a key.
///
/// - A holder of the lock sees all of a change or none of it.
/// - `bucket` is measured in `quota`.
/// - While the state file lacks some of the usage, the record is `dirty`: it is in the list of dirty
///   keys, or with the writer.
pub(super) struct KeyState {
    pub(super) name: Box<str>,
    /// The digests of a key that was rotated; none: the record's digest is the only one.
    pub(super) secrets: Option<Box<Secrets>>,
    pub(super) revoked: OptionalTime,
    pub(super) entitlements: Arc<UserEntitlements>,
    /// The principal of requests with the key: made at its first use, and kept for the keys that were used last
    /// ([`super::record::CachedPrincipals`]).
    pub(super) principal: Option<Arc<Principal>>,
    /// Quota, plan and policy of its own, and what a plan adds to its quota; none of nearly all keys.
    pub(super) terms: Option<Box<KeyTerms>>,
    quota: PackedQuota,
    pub(super) bucket: Bucket,
    pub(super) last_used: OptionalTime,
    pub(super) uses: u64,
    pub(super) dirty: bool,
}

/// Usage of a key at one moment: the part that is written back to the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Usage {
    pub(crate) bucket: Bucket,
    /// The `per` that the bucket's level is measured in, in microseconds.
    pub(crate) per_us: u64,
    pub(crate) last_used: Option<Micros>,
    pub(crate) uses: u64,
}

/// Terms of one key, which nearly no key has: in a box.
#[derive(Debug, Default)]
pub(super) struct KeyTerms {
    /// In place of the configured one.
    pub(super) quota: Option<Quota>,
    /// Its plan, before those of its user and its organization.
    pub(super) plan: Option<PlanName>,
    /// Its own budget, before those of its user and its organization.
    pub(super) budget: Option<OwnBudget>,
    pub(super) policy: KeyPolicy,
    /// By the plan and the budget in force, which may be those of its user or its organization.
    pub(super) of_plan: PlanTerms,
    /// Present while the policy or the plan bounds requests in flight, and while requests hold slots of it.
    slots: Option<Arc<KeySlots>>,
}

/// Terms of the plan and the budget in force of a key, beside its quota.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct PlanTerms {
    concurrent: Option<u32>,
    /// The budget, and the meter of its subject.
    pub(super) budget: Option<(Budget, Arc<BudgetMeter>)>,
    /// The configuration does not have the plan.
    pub(super) is_missing: bool,
}

/// Digests of the secrets that authenticate a key. Older digests lead to the key's record too, so that their use is
/// recognized and refused as expired.
pub(crate) struct Secrets {
    pub(crate) current: KeyDigest,
    /// All earlier digests.
    pub(crate) replaced: Vec<KeyDigest>,
    /// Digest before the last rotation, and the time until which it is valid; none when there was no overlap.
    pub(crate) previous: Option<(KeyDigest, Micros)>,
    pub(crate) rotated: Option<Micros>,
    /// End of the overlap as the rotation asked for it, for display.
    pub(crate) previous_until: Option<Micros>,
}

/// Entitlements of a user, which all keys of the user share.
pub(crate) struct UserEntitlements {
    pub(super) user: UserId,
    pub(super) org: Arc<OrgRecord>,
    pub(super) permissions: Box<[Permission]>,
    /// Header values that all keys of the user share.
    headers: PrincipalHeaders,
    pub(super) removed: bool,
    pub(super) suspended: bool,
    pub(super) withdrawn: bool,
}

/// A key as the state file has it.
pub(crate) struct StoredKey {
    pub(crate) key: Key,
    /// Its row in the state file; zero for a new key.
    pub(crate) row: u32,
    pub(crate) secrets: Secrets,
    /// Its bucket, and the `per` in microseconds that the level is measured in; none when it was never written back.
    pub(crate) bucket: Option<(Bucket, u64)>,
}

/// A time that may be missing, in eight bytes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct OptionalTime(u64);

/// A quota in 16 bytes. Its `per` is whole seconds, and at most 366 days ([`Quota::validate`]).
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct PackedQuota {
    requests: u32,
    burst: u32,
    per_seconds: u32,
    strict: bool,
}

impl KeyState {
    /// A key that was just loaded or created.
    pub(super) fn new(
        key: &mut Key,
        secrets: Option<Box<Secrets>>,
        entitlements: Arc<UserEntitlements>,
        (quota, bucket): (Quota, Bucket),
        limits: LimitsInForce<'_>,
        budgets: &Budgets,
    ) -> Self {
        let of_plan = PlanTerms::of(limits, key.id, key.session_quota_key, &entitlements, budgets);
        let policy = key.policy.take().map(|policy| *policy).unwrap_or_default();
        let terms =
            KeyTerms { quota: key.quota, plan: key.plan.take(), budget: key.budget, policy, of_plan, slots: None };
        Self {
            name: std::mem::take(&mut key.name).into_boxed_str(),
            secrets,
            revoked: key.revoked.into(),
            entitlements,
            principal: None,
            terms: terms.boxed(),
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

    /// Puts other limits in force from now on; returns whether the quota is another one.
    pub(super) fn apply_limits(&mut self, limits: LimitsInForce<'_>, of_plan: PlanTerms, now: Micros) -> bool {
        let is_same = match self.terms.as_deref() {
            Some(terms) => terms.of_plan == of_plan,
            None => of_plan == PlanTerms::default(),
        };
        if !is_same {
            self.change_terms(|terms| terms.of_plan = of_plan);
        }
        let is_other = self.quota() != limits.quota;
        if is_other {
            self.apply_quota(limits.quota, now);
        }
        is_other
    }

    /// Changes the terms. Their box is made and dropped as they need it.
    pub(super) fn change_terms(&mut self, change: impl FnOnce(&mut KeyTerms)) {
        let mut terms = self.terms.take().map(|terms| *terms).unwrap_or_default();
        change(&mut terms);
        self.terms = terms.boxed();
    }

    /// Puts another quota in force from now on; the tokens of this moment stay.
    fn apply_quota(&mut self, quota: Quota, now: Micros) {
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

    /// The key's own plan and budget.
    pub(super) fn given_plan(&self) -> GivenPlan<'_> {
        let Some(terms) = self.terms.as_deref() else { return GivenPlan::default() };
        GivenPlan { plan: terms.plan.as_ref(), budget: terms.budget }
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

    /// Counts a use and all uses before it; returns false when they are counted already. No use cost more than
    /// `largest` tokens.
    ///
    /// The bucket is charged for all of them at the time of the last one: so it is never fuller than it was.
    pub(super) fn replay(&mut self, replayed: &JournaledUse, largest: u32) -> bool {
        let JournaledUse { time, number, cost, .. } = *replayed;
        let Some(uses) = number.checked_sub(self.uses).filter(|uses| *uses > 0) else { return false };
        // The journal may lack uses in between, which were decided all the same: their tokens are taken as well. What
        // each of them cost is not known.
        let tokens = (uses - 1).saturating_mul(u64::from(largest)).saturating_add(u64::from(cost));
        let quota = self.quota();
        self.bucket = self.bucket.refill(quota, time).charge(quota, tokens);
        self.uses = number;
        self.last_used = self.last_used.get().max(Some(time)).into();
        true
    }

    /// The usage of this moment.
    pub(super) fn usage(&self) -> Usage {
        let per_us = self.quota().per_micros();
        Usage { bucket: self.bucket, per_us, last_used: self.last_used.get(), uses: self.uses }
    }
}

impl KeyTerms {
    /// The terms with the slots that they need, in a box; none when nothing in them is the key's own.
    fn boxed(mut self) -> Option<Box<Self>> {
        // Requests that are open count against a limit that is set again.
        self.slots = if self.concurrent().is_some() {
            Some(self.slots.unwrap_or_default())
        } else {
            self.slots.filter(|slots| slots.in_flight() > 0)
        };
        let is_own = self.quota.is_some()
            || self.plan.is_some()
            || self.budget.is_some()
            || !self.policy.is_empty()
            || self.of_plan != PlanTerms::default()
            || self.slots.is_some();
        is_own.then(|| Box::new(self))
    }

    /// Requests in flight by the policy and the plan.
    fn concurrent(&self) -> Option<u32> {
        smaller(self.policy.concurrent, self.of_plan.concurrent)
    }

    /// The refusal of a key that may not be used at all: expired, or disabled.
    pub(super) fn refusal_of_key(&self, now: Micros) -> Option<Refusal> {
        if self.policy.expires.is_some_and(|expires| expires <= now) {
            Some(Refusal::KeyExpired)
        } else {
            self.policy.disabled.map(|_| Refusal::KeyDisabled)
        }
    }

    /// The refusal of the client's address.
    pub(super) fn refusal_of_address(&self, request: DecideRequest<'_>) -> Option<Refusal> {
        (!self.policy.allows_address(request.client)).then_some(Refusal::AddressRefused)
    }

    /// The slots of the key and their number, if its policy or its plan has one.
    pub(super) fn slots(&self) -> Option<(&Arc<KeySlots>, u32)> {
        self.slots.as_ref().zip(self.concurrent())
    }

    /// The status of these slots.
    pub(super) fn slot_status(&self) -> Option<SlotStatus> {
        self.slots().map(|(slots, concurrent)| SlotStatus { concurrent, in_flight: slots.in_flight() })
    }
}

impl PlanTerms {
    /// The terms of a key of a user; with `is_of_sessions`, of all sessions of the user.
    pub(super) fn of(
        limits: LimitsInForce<'_>,
        key: KeyId,
        is_of_sessions: bool,
        entitlements: &UserEntitlements,
        budgets: &Budgets,
    ) -> Self {
        let budget = limits.budget.map(|budget| {
            let subject = budget.subject((!is_of_sessions).then_some(key), entitlements.user, entitlements.org.id);
            (budget, budgets.meter(subject))
        });
        Self { concurrent: limits.concurrent, budget, is_missing: limits.is_missing }
    }
}

impl Secrets {
    /// The secrets of a new key.
    pub(crate) fn new(current: KeyDigest) -> Self {
        Self { current, replaced: Vec::new(), previous: None, rotated: None, previous_until: None }
    }

    /// Returns true when there ever was another digest than the current one.
    pub(super) fn are_rotated(&self) -> bool {
        self.rotated.is_some() || self.previous.is_some() || self.previous_until.is_some() || !self.replaced.is_empty()
    }

    /// The time until which a secret with this digest is valid; the epoch when it is not.
    pub(super) fn valid_until(&self, digest: &KeyDigest) -> Micros {
        if self.current == *digest {
            return Validity::FOREVER;
        }
        let previous = self.previous.filter(|(previous, _)| previous == digest);
        previous.map_or(Micros(0), |(_, until)| until)
    }

    /// Replaces the current digest, which stays valid until `until`.
    pub(super) fn rotate(&mut self, digest: KeyDigest, at: Micros, until: Micros) {
        let replaced = std::mem::replace(&mut self.current, digest);
        self.replaced.push(replaced);
        // Without an overlap there is no previous digest: a decision may carry a time before the rotation, and must not
        // accept it then either.
        self.previous = (until > at).then_some((replaced, until));
        self.rotated = Some(at);
        self.previous_until = Some(until);
    }
}

impl UserEntitlements {
    pub(crate) fn new(user: &User, org: Arc<OrgRecord>) -> Self {
        let permissions = user.permissions_in_force();
        let headers = PrincipalHeaders::new(user.id, org.id, permissions);
        let removed = user.removed.is_some();
        let suspended = user.suspended.is_some();
        let withdrawn = user.withdrawn.is_some();
        Self { user: user.id, org, permissions: permissions.into(), headers, removed, suspended, withdrawn }
    }

    /// The principal of requests with this key of the user, which has these terms; without a key, of requests of the
    /// user's sessions.
    pub(super) fn principal(&self, key: Option<KeyId>, terms: Option<&KeyTerms>) -> Principal {
        let headers = match terms {
            Some(terms) if terms.policy.permissions.is_some() => {
                let permissions = terms.policy.effective_permissions(&self.permissions);
                PrincipalHeaders::new(self.user, self.org.id, &permissions)
            }
            _ => self.headers.clone(),
        };
        let method = if key.is_some() { AuthMethod::ApiKey } else { AuthMethod::Session };
        Principal { key_id: key, user_id: self.user, org_id: self.org.id, method, headers }
    }
}

impl StoredKey {
    /// The whole key but for its actors, under the quota in force; `digests` are those that it had before its
    /// rotations.
    pub(crate) fn export(self, digests: Vec<KeyDigest>, quota: Quota) -> KeyExport {
        let Self { key, secrets, bucket, .. } = self;
        let previous = secrets.previous.map(|(previous, _)| previous);
        let replaced = digests.into_iter().filter(|digest| Some(*digest) != previous).collect();
        let bucket = bucket.map_or(Bucket::full(quota, key.created), |(bucket, per)| bucket.convert(per, quota));
        let digest = secrets.current;
        KeyExport { key, digest, previous, replaced, bucket, quota, actors: KeyActors::default() }
    }
}

impl OptionalTime {
    /// The last microsecond there is, in half a million years.
    const NONE: u64 = u64::MAX;

    pub(super) fn get(self) -> Option<Micros> {
        (self.0 != Self::NONE).then_some(Micros(self.0))
    }
}

impl From<Option<Micros>> for OptionalTime {
    fn from(time: Option<Micros>) -> Self {
        Self(time.map_or(Self::NONE, |time| time.0))
    }
}

impl From<Quota> for PackedQuota {
    fn from(Quota { requests, per, burst, strict }: Quota) -> Self {
        debug_assert_eq!(per.subsec_nanos(), 0, "a quota is validated before a key has it");
        let per_seconds = u32::try_from(per.as_secs()).expect("it is at most 366 days");
        Self { requests, burst, per_seconds, strict }
    }
}

impl From<PackedQuota> for Quota {
    fn from(PackedQuota { requests, burst, per_seconds, strict }: PackedQuota) -> Self {
        Self { requests, per: Duration::from_secs(per_seconds.into()), burst, strict }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packed_fields_say_the_same() {
        for time in [None, Some(Micros(0)), Some(Micros(1 << 60))] {
            assert_eq!(OptionalTime::from(time).get(), time);
        }
        let longest = Quota { per: Duration::from_secs(366 * 86_400), burst: 1, ..Quota::DEFAULT };
        let strict = Quota { burst: 100, strict: true, ..Quota::DEFAULT };
        for quota in [Quota::DEFAULT, longest, strict] {
            assert_eq!(Quota::from(PackedQuota::from(quota.validate().unwrap())), quota);
        }
    }
}
