//! Key record: decisions with a key, its changes, and its views for management, revocations, exports and hand-overs.
//!
//! # Why a lock and not atomics
//!
//! The mutable part of a key ([`KeyState`]) is behind one short lock in its record. A bucket needs two words, level
//! and time, to be exact for every quota, and they must change together with the number of the use. Above all, the
//! same critical section puts every decision either wholly before or wholly after a revocation, a rotation or a
//! change of the user: everything is checked, then taken, under it. The lock is never held over an await, and a
//! decision holds it for about as long as two contended atomics would cost. Two requests wait for each other only
//! when they carry the same key.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use parking_lot::{Mutex, MutexGuard};

use crate::bucket::Bucket;
use crate::listing::KeyPosition;
use crate::{
    Admitted, ChangeError, CredentialStatus, DecideRequest, Decision, Defaults, GivenPlan, GivenPlans, Key, KeyActors,
};
use crate::{KeyExport, LimitsInForce, Reservation};
use crate::{RevocationEntry, RevokedBy, Validity};
use domain::clock::Micros;
use domain::identity::{OrgId, Principal, UserId};
use domain::key::policy::{Disabled, KeyPolicy};
use domain::key::{KeyDigest, KeyId};
use domain::quota::RateLimitStatus;
use domain::refusal::Refusal;

use super::super::JournaledUse;
use super::super::budgets::Budgets;
use super::slots::Permit;
use super::state::{KeyState, KeyTerms, PlanTerms, Secrets, StoredKey, Usage, UserEntitlements};

/// A key: its immutable part, and a lock around the mutable part.
///
/// - A state may have millions of them: what few keys have is boxed, and what keys share is shared.
pub(crate) struct KeyRecord {
    /// Its creation time and id.
    pub(super) position: KeyPosition,
    /// The current digest when the key came into memory; later ones are in its state.
    pub(super) digest: KeyDigest,
    /// Row in the state file; zero until it is looked up, of a key that this process created. For the writer alone.
    row: AtomicU32,
    imported: bool,
    /// True for a session quota key: it meters the requests of its user's sessions and has no secret.
    pub(super) session_quota_key: bool,
    state: Mutex<KeyState>,
}

/// The keys whose usage changed since it was last written back, each once.
#[derive(Default)]
pub(crate) struct DirtyKeys(Mutex<Vec<Arc<KeyRecord>>>);

/// Principals that are kept: some 300 bytes each. In the second between two rounds of the writer there may be more.
const KEPT: usize = 65_536;

/// The keys that have a principal, in the order in which it was made. Making one costs as much as the rest of a
/// decision, and keeping it more than the rest of its key: the keys that were used last have one.
#[derive(Default)]
pub(crate) struct CachedPrincipals(Mutex<VecDeque<Arc<KeyRecord>>>);

impl KeyRecord {
    /// A key that comes into memory; its effective quota and its bucket are measured alike.
    pub(crate) fn new(
        stored: StoredKey,
        entitlements: Arc<UserEntitlements>,
        bucket: Bucket,
        limits: LimitsInForce<'_>,
        budgets: &Budgets,
    ) -> Self {
        let StoredKey { mut key, row, secrets, .. } = stored;
        let digest = secrets.current;
        let rotated = secrets.are_rotated().then(|| Box::new(secrets));
        let state = KeyState::new(&mut key, rotated, entitlements, (limits.quota, bucket), limits, budgets);
        Self {
            position: KeyPosition::from(&key),
            digest,
            row: AtomicU32::new(row),
            imported: key.imported,
            session_quota_key: key.session_quota_key,
            state: Mutex::new(state),
        }
    }

    pub(crate) fn id(&self) -> KeyId {
        self.position.id
    }

    /// The organization and the user that the key belongs to.
    pub(crate) fn owners(&self) -> (OrgId, UserId) {
        let state = self.state();
        (state.entitlements.org.id, state.entitlements.user)
    }

    /// Decides one request with this key: checks everything, then takes. `count_missing` is called if the configuration
    /// does not have the plan of the key.
    pub(crate) fn decide(
        self: &Arc<Self>,
        request: DecideRequest<'_>,
        dirty: &DirtyKeys,
        principals: &CachedPrincipals,
        count_missing: impl FnOnce(),
    ) -> Decision {
        let mut state = self.state();
        let principal = self.principal(&mut state, principals);
        if let Some(refusal) = state.authenticate(request, &self.digest) {
            return Decision::Denied { refusal, principal: Some(principal), rate_limit: None };
        }
        // Refilled for a denied request too: its answer shows the tokens and times as of now.
        state.bucket = state.bucket.refill(state.quota(), request.now);
        match self.take(&mut state, request, count_missing) {
            Ok((permit, in_flight)) => {
                self.mark_dirty(&mut state, dirty);
                let rate_limit = self.status_of(&state, request, in_flight);
                Decision::Admitted(Admitted {
                    principal,
                    rate_limit,
                    number: state.uses,
                    provisional: false,
                    validity: Validity::new(*request.digest, state.valid_until(request.digest, &self.digest)),
                    permit,
                })
            }
            Err(refusal) => Decision::Denied {
                refusal,
                principal: Some(principal),
                rate_limit: Some(self.status_of(&state, request, state.entitlements.org.in_flight())),
            },
        }
    }

    /// The principal of requests with the key.
    fn principal(self: &Arc<Self>, state: &mut KeyState, cached: &CachedPrincipals) -> Arc<Principal> {
        if let Some(principal) = &state.principal {
            return Arc::clone(principal);
        }
        let id = (!self.session_quota_key).then_some(self.id());
        let principal = Arc::new(state.entitlements.principal(id, state.terms.as_deref()));
        state.principal = Some(Arc::clone(&principal));
        cached.add(Arc::clone(self));
        principal
    }

    /// Makes the remaining checks, then takes the slots and the tokens.
    fn take(
        &self,
        state: &mut KeyState,
        request: DecideRequest<'_>,
        count_missing: impl FnOnce(),
    ) -> Result<(crate::Permit, u32), Refusal> {
        if state.entitlements.org.is_suspended() {
            return Err(Refusal::OrgSuspended);
        }
        if state.entitlements.withdrawn {
            return Err(Refusal::Forbidden);
        }
        if let Some(refusal) = request.access.refusal(&state.entitlements.permissions) {
            return Err(refusal);
        }
        if let Some(terms) = state.terms.as_deref() {
            if let Some(refusal) = request.access.refusal_by(&terms.policy) {
                return Err(refusal);
            }
            // Counted where the terms are read anyway: a key without any costs nothing more.
            if terms.of_plan.is_missing {
                count_missing();
            }
        }
        let quota = state.quota();
        let (tokens, units) = (request.cost.tokens(), request.cost.units());
        if tokens > quota.burst {
            return Err(Refusal::CostOverLimit);
        }
        // The tokens are looked for before the slot is acquired, and taken after it: a request that is denied for its
        // rate never holds a slot, not even for a moment, and one that is denied for its slot keeps its tokens.
        let taken = state.bucket.try_take(quota, tokens, request.now).map_err(|_| Refusal::RateLimited)?;
        let terms = state.terms.as_deref();
        // So it is with the budget, whose meter stays locked meanwhile.
        let budget = terms.and_then(|terms| terms.of_plan.budget.as_ref());
        let reserving = budget.map(|(budget, meter)| meter.begin(*budget, units, request.now));
        let reserving = reserving.transpose().map_err(|_| Refusal::QuotaExhausted)?;
        let (permit, in_flight) = Permit::acquire(terms.and_then(KeyTerms::slots), &state.entitlements.org)?;
        let permit = crate::Permit::Embedded(permit);
        let permit = match reserving {
            Some(reserving) => {
                let (total, meter) = reserving.reserve();
                permit.with_reservation(Reservation::embedded(total, units.into(), meter))
            }
            None => permit,
        };
        state.bucket = taken;
        state.uses += 1;
        state.last_used = Some(request.now).into();
        Ok((permit, in_flight))
    }

    /// Holds the slots of a request that the predecessor still serves, also beyond their limits.
    pub(crate) fn hold_slots(&self) -> Permit {
        let state = self.state();
        Permit::hold(state.terms.as_deref().and_then(KeyTerms::slots), &state.entitlements.org)
    }

    /// Checks whether a credential that was admitted by this record is still valid.
    pub(crate) fn check_credential(&self, digest: &KeyDigest, now: Micros) -> CredentialStatus {
        let state = self.state();
        let until = state.valid_until(digest, &self.digest);
        let is_disabled = state.terms.as_deref().is_some_and(|terms| terms.policy.disabled.is_some());
        let revoked = [
            (state.revoked.get().is_some() || is_disabled, RevokedBy::Key),
            (until <= now, RevokedBy::Secret),
            (state.entitlements.removed || state.entitlements.suspended, RevokedBy::User),
            (state.entitlements.org.is_suspended(), RevokedBy::Org),
        ];
        let reason = revoked.into_iter().find_map(|(is_revoked, reason)| is_revoked.then_some(reason));
        reason.map_or(CredentialStatus::Valid(until), CredentialStatus::Revoked)
    }

    /// The rate-limit status at `now`. Takes nothing.
    pub(crate) fn rate_limit_status(&self, now: Micros) -> RateLimitStatus {
        let mut state = self.state();
        state.bucket = state.bucket.refill(state.quota(), now);
        self.status_at(&state, (1, now), state.entitlements.org.in_flight())
    }

    /// The rate-limit status after a request.
    fn status_of(&self, state: &KeyState, request: DecideRequest<'_>, in_flight: u32) -> RateLimitStatus {
        self.status_at(state, (request.cost.tokens(), request.now), in_flight)
    }

    fn status_at(&self, state: &KeyState, (cost, now): (u32, Micros), in_flight: u32) -> RateLimitStatus {
        let terms = state.terms.as_deref();
        let budget = terms.and_then(|terms| terms.of_plan.budget.as_ref());
        let quota = state.quota();
        RateLimitStatus {
            quota,
            remaining: state.bucket.remaining(quota),
            full_in_us: state.bucket.full_in_us(quota),
            token_in_us: state.bucket.tokens_in_us(quota, cost),
            concurrent: state.entitlements.org.limit(),
            in_flight,
            key_slots: terms.and_then(KeyTerms::slot_status),
            budget: budget.map(|(budget, meter)| Box::new(meter.status(*budget, now, state.entitlements.org.id))),
        }
    }

    /// Counts a use that the state file lacks, and all uses before it, each of which cost at most `largest`. Returns
    /// false when the file has it.
    pub(crate) fn replay(self: &Arc<Self>, replayed: &JournaledUse, largest: u32, dirty: &DirtyKeys) -> bool {
        let mut state = self.state();
        let counted = state.replay(replayed, largest);
        if counted {
            self.mark_dirty(&mut state, dirty);
        }
        counted
    }

    /// Sets or removes the own quota, plan and budget of the key, as `next` has them, and puts in force the limits that
    /// follow.
    pub(crate) fn set_limits(
        self: &Arc<Self>,
        next: &Key,
        limits: LimitsInForce<'_>,
        budgets: &Budgets,
        now: Micros,
        dirty: &DirtyKeys,
    ) {
        let mut state = self.state();
        state.change_terms(|terms| {
            terms.quota = next.quota;
            terms.plan.clone_from(&next.plan);
            terms.budget = next.budget;
        });
        let of_plan = self.plan_terms(&state, limits, budgets);
        state.apply_limits(limits, of_plan, now);
        self.mark_dirty(&mut state, dirty);
    }

    /// Puts in force the limits by another configuration, or by other plans of the user or the organization.
    pub(crate) fn apply_limits(
        self: &Arc<Self>,
        defaults: &Defaults,
        given: GivenPlans<'_>,
        budgets: &Budgets,
        now: Micros,
        dirty: &DirtyKeys,
    ) {
        let mut state = self.state();
        let plan = state.given_plan().plan.cloned();
        let key = GivenPlan { plan: plan.as_ref(), budget: state.given_plan().budget };
        let limits = defaults.limits_of(state.own_quota(), GivenPlans { key, ..given });
        let of_plan = self.plan_terms(&state, limits, budgets);
        if state.apply_limits(limits, of_plan, now) {
            self.mark_dirty(&mut state, dirty);
        }
    }

    fn plan_terms(&self, state: &KeyState, limits: LimitsInForce<'_>, budgets: &Budgets) -> PlanTerms {
        PlanTerms::of(limits, self.id(), self.session_quota_key, &state.entitlements, budgets)
    }

    /// Renames the key.
    pub(crate) fn rename(&self, name: String) {
        self.state().name = name.into_boxed_str();
    }

    /// Sets or removes the policy.
    pub(crate) fn set_policy(&self, policy: Option<Box<KeyPolicy>>) {
        let mut state = self.state();
        state.change_terms(|terms| terms.policy = policy.map(|policy| *policy).unwrap_or_default());
        state.principal = None;
    }

    /// Disables a key that was not used, created or enabled since a time.
    ///
    /// # Errors
    /// [`ChangeError::InUse`]: it was, and nothing is changed.
    pub(crate) fn disable_unused(&self, since: Micros, disabled: Disabled) -> Result<(), ChangeError> {
        let mut state = self.state();
        let mut policy = state.policy().map(|policy| *policy).unwrap_or_default();
        if self.position.created.max(state.last_used.get().max(policy.enabled).unwrap_or_default()) >= since {
            return Err(ChangeError::InUse(self.id()));
        }
        policy.disabled = policy.disabled.or(Some(disabled));
        state.change_terms(|terms| terms.policy = policy);
        Ok(())
    }

    /// Takes a disabling back that was not committed.
    pub(crate) fn undo_disabling(&self, disabled: Disabled) {
        let mut state = self.state();
        let mut policy = state.policy().map(|policy| *policy).unwrap_or_default();
        if policy.disabled == Some(disabled) {
            policy.disabled = None;
            state.change_terms(|terms| terms.policy = policy);
        }
    }

    /// Applies a change of the key's user.
    pub(crate) fn apply_user(&self, user: &Arc<UserEntitlements>) {
        let mut state = self.state();
        state.entitlements = Arc::clone(user);
        state.principal = None;
    }

    /// Revokes the key; the first time of several stands.
    pub(crate) fn revoke(&self, at: Micros) {
        let mut state = self.state();
        state.revoked = state.revoked.get().or(Some(at)).into();
    }

    /// Replaces the current secret.
    pub(crate) fn rotate(&self, digest: KeyDigest, at: Micros, previous_until: Micros) {
        self.secrets(&mut self.state()).rotate(digest, at, previous_until);
    }

    /// Notes a digest that the key had before its last rotation.
    pub(crate) fn add_replaced_digest(&self, digest: KeyDigest) {
        self.secrets(&mut self.state()).replaced.push(digest);
    }

    /// The digests of a key that was rotated, or is about to be.
    fn secrets<'a>(&self, state: &'a mut KeyState) -> &'a mut Secrets {
        state.secrets.get_or_insert_with(|| Box::new(Secrets::new(self.digest)))
    }

    /// The rotation that was just made, as an entry of the revocation log.
    pub(crate) fn secrets_entry(&self) -> RevocationEntry {
        let state = self.state();
        let Some(secrets) = &state.secrets else { unreachable!("the key was rotated just now") };
        let replaced = secrets.replaced.last().map(|replaced| (*replaced, RevocationEntry::ENDED));
        let Some(previous) = secrets.previous.or(replaced) else { unreachable!("a rotation replaces a secret") };
        RevocationEntry::Secrets { key: self.id(), current: secrets.current, previous }
    }

    /// The policy in force, as an entry of the revocation log.
    pub(crate) fn policy_entry(&self) -> RevocationEntry {
        RevocationEntry::of_policy(self.id(), self.state().policy().as_deref())
    }

    /// The record as management sees it.
    pub(crate) fn view(&self) -> Key {
        let state = self.state();
        let secrets = state.secrets.as_deref();
        Key {
            id: self.id(),
            org: state.entitlements.org.id,
            user: state.entitlements.user,
            name: state.name.as_ref().to_owned(),
            imported: self.imported,
            session_quota_key: self.session_quota_key,
            created: self.position.created,
            rotated: secrets.and_then(|secrets| secrets.rotated),
            previous_until: secrets.and_then(|secrets| secrets.previous_until),
            revoked: state.revoked.get(),
            quota: state.own_quota(),
            plan: state.given_plan().plan.cloned(),
            budget: state.given_plan().budget,
            policy: state.policy(),
            last_used: state.last_used.get(),
            uses: state.uses,
        }
    }

    /// All digests that the key has or had.
    pub(crate) fn digests(&self) -> Vec<KeyDigest> {
        match self.state().secrets.as_deref() {
            Some(secrets) => secrets.replaced.iter().copied().chain([secrets.current]).collect(),
            None => vec![self.digest],
        }
    }

    /// The whole key but for its actors, which the file alone has.
    pub(crate) fn export(&self) -> KeyExport {
        let key = self.view();
        let digests = self.digests();
        let state = self.state();
        let (digest, previous) = state
            .secrets
            .as_deref()
            .map_or((self.digest, None), |secrets| (secrets.current, secrets.previous.map(|(previous, _)| previous)));
        let replaced = digests.into_iter().filter(|other| *other != digest && Some(*other) != previous).collect();
        let bucket = state.bucket;
        let quota = state.quota();
        KeyExport { key, digest, previous, replaced, bucket, quota, actors: KeyActors::default() }
    }

    /// The row in the state file; zero when it is not known.
    pub(crate) fn row(&self) -> u32 {
        self.row.load(Ordering::Relaxed)
    }

    pub(crate) fn set_row(&self, row: u32) {
        self.row.store(row, Ordering::Relaxed);
    }

    /// Takes the usage that is to be written back. The next use makes the record dirty again.
    pub(crate) fn take_usage(&self) -> Usage {
        let mut state = self.state();
        state.dirty = false;
        state.usage()
    }

    fn mark_dirty(self: &Arc<Self>, state: &mut KeyState, dirty: &DirtyKeys) {
        if !state.dirty {
            state.dirty = true;
            dirty.push(Arc::clone(self));
        }
    }

    /// A panic under this lock cannot leave the state half changed: it is only assigned to.
    fn state(&self) -> MutexGuard<'_, KeyState> {
        self.state.lock()
    }
}

impl DirtyKeys {
    fn push(&self, record: Arc<KeyRecord>) {
        self.list().push(record);
    }

    /// Adds all keys of another list, which has none of this one.
    pub(crate) fn append(&self, other: Self) {
        self.list().append(&mut other.list());
    }

    /// Exchanges the list for `empty`, whose capacity the next uses fill, so that a use allocates nothing.
    pub(crate) fn take(&self, empty: Vec<Arc<KeyRecord>>) -> Vec<Arc<KeyRecord>> {
        std::mem::replace(&mut self.list(), empty)
    }

    fn list(&self) -> MutexGuard<'_, Vec<Arc<KeyRecord>>> {
        self.0.lock()
    }
}

impl CachedPrincipals {
    fn add(&self, record: Arc<KeyRecord>) {
        self.0.lock().push_back(record);
    }

    /// Forgets the oldest principals beyond those that are kept. One that is still in use is made again.
    pub(crate) fn trim(&self) {
        self.trim_to(KEPT);
    }

    fn trim_to(&self, kept: usize) {
        let oldest: Vec<Arc<KeyRecord>> = {
            let mut records = self.0.lock();
            let excess = records.len().saturating_sub(kept);
            records.drain(..excess).collect()
        };
        // Without the lock of the list: a decision has that of its record when it takes it.
        oldest.iter().for_each(|record| record.state().principal = None);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::embedded::fixture::Fixture;
    use crate::{Change, RouteAccess};
    use domain::budget::Cost;

    #[tokio::test]
    async fn oldest_principals_are_forgotten_and_made_again() {
        let digests = [b"one", b"two", b"six"].map(|text| KeyDigest::of(text));
        let fixture = Fixture::new().await;
        let state = &fixture.state;
        for digest in digests {
            state.change(Change::CreateKey { key: fixture.key(), digest }).await.unwrap();
        }
        let decide = |digest| {
            let access = RouteAccess::Everyone;
            match state.decide(DecideRequest {
                digest,
                id: None,
                access,
                cost: Cost::ONE,
                client: None,
                now: Micros(2),
            }) {
                Decision::Admitted(admitted) => admitted.principal,
                Decision::Denied { refusal, .. } => panic!("{refusal:?}"),
            }
        };
        let [first, _, last] = digests.each_ref().map(decide);
        assert!(Arc::ptr_eq(&first, &decide(&digests[0])), "made once");
        state.directory.principals.trim_to(1);
        let has_principal = |digest| state.directory.by_digest(digest).unwrap().state().principal.is_some();
        assert_eq!(digests.each_ref().map(has_principal), [false, false, true]);
        assert!(Arc::ptr_eq(&last, &decide(&digests[2])));
        assert_eq!(decide(&digests[0]).key_id, first.key_id);
        state.directory.principals.trim_to(0);
        assert_eq!(digests.each_ref().map(has_principal), [false; 3], "the one that was made again, too");
    }

    /// Bytes that the allocator takes: a header of 8 before them, all in units of 16.
    const fn allocated(size: usize) -> usize {
        (size + 8).next_multiple_of(16)
    }

    /// Counted are, of a key without terms that was not rotated and is not in use:
    ///
    /// - its record, in an `Arc` with two counts, and a name of up to 24 bytes;
    /// - its entries in two hash tables, by id and by digest: a pointer and a byte for each place, 7 of 16 of which are
    ///   used in a table that has just grown;
    /// - its entries in two B-trees, of its organization and of its user, with as few in a node as there may be: 5
    ///   pointers in a leaf with room for 11. Each leaf has one more key above it, and a fifth of an inner node.
    ///
    /// Its share of its user and its organization is not counted.
    #[test]
    fn key_costs_at_most_360_bytes() {
        const POINTER: usize = size_of::<Arc<KeyRecord>>();
        let record = allocated(2 * size_of::<usize>() + size_of::<KeyRecord>()) + allocated(24);
        let hashed = ((POINTER + 1) * 16).div_ceil(7);
        let leaf = 11 * POINTER + size_of::<usize>() + 2 * size_of::<u16>();
        let inner = leaf + 12 * size_of::<usize>();
        let ordered = (allocated(leaf) + allocated(inner).div_ceil(5)).div_ceil(6);
        let bytes = record + 2 * hashed + 2 * ordered;
        assert!(bytes <= 360, "{bytes}, of which the record is {}", size_of::<KeyRecord>());
        // Fields that few keys have are boxed.
        assert!(size_of::<KeyRecord>() <= 184, "{}", size_of::<KeyRecord>());
    }
}
