//! Key record for decisions.
//!
//! # Why a lock and not atomics
//!
//! The mutable part of a key ([`KeyState`]) is behind one short lock in its record. A bucket needs two words, level
//! and time, to be exact for every quota, and they must change together with the number of the use. Above all, the
//! same critical section puts every decision either wholly before or wholly after a revocation, a rotation or a
//! change of the user: everything is checked, then taken, under it. The lock is never held over an await, and a
//! decision holds it for about as long as two contended atomics would cost. Two requests wait for each other only
//! when they carry the same key.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use parking_lot::{Mutex, MutexGuard};

use crate::bucket::Bucket;
use crate::listing::KeyPosition;
use crate::{Admitted, CredentialStatus, DecideRequest, Decision, KeyExport, RevokedBy, Validity};
use domain::clock::Micros;
use domain::identity::{OrgId, UserId};
use domain::key::{KeyDigest, KeyId};
use domain::quota::{Quota, RateLimitStatus};
use domain::refusal::Refusal;

use super::cached_principals::CachedPrincipals;
use super::entitlements::{Secrets, UserEntitlements};
use super::key_slots::Permit;
use super::key_state::{KeyState, Usage};
use super::key_terms::KeyTerms;
use super::stored_key::StoredKey;

/// A key: its immutable part, and a lock around the mutable part.
///
/// - A state may have millions of them: what few keys have is boxed, and what keys share is shared.
pub(crate) struct KeyRecord {
    /// Its creation time and id.
    pub(super) position: KeyPosition,
    /// The current digest when the key came into memory; later ones are in its state.
    pub(super) digest: KeyDigest,
    pub(super) name: Box<str>,
    /// Row in the state file; zero until it is looked up, of a key that this process created. For the writer alone.
    row: AtomicU32,
    pub(super) imported: bool,
    /// True for a session quota key: it meters the requests of its user's sessions and has no secret.
    pub(super) session_quota_key: bool,
    state: Mutex<KeyState>,
}

/// The keys whose usage changed since it was last written back, each once.
#[derive(Default)]
pub(super) struct DirtyKeys(Mutex<Vec<Arc<KeyRecord>>>);

impl KeyRecord {
    /// A key that comes into memory; its effective quota and its bucket are measured alike.
    pub(super) fn new(stored: StoredKey, entitlements: Arc<UserEntitlements>, quota: Quota, bucket: Bucket) -> Self {
        let StoredKey { mut key, row, secrets, .. } = stored;
        let digest = secrets.current;
        let rotated = secrets.are_rotated().then(|| Box::new(secrets));
        let state = KeyState::new(&mut key, rotated, entitlements, (quota, bucket));
        Self {
            position: KeyPosition::from(&key),
            digest,
            name: key.name.into_boxed_str(),
            row: AtomicU32::new(row),
            imported: key.imported,
            session_quota_key: key.session_quota_key,
            state: Mutex::new(state),
        }
    }

    pub(super) fn id(&self) -> KeyId {
        self.position.id
    }

    /// The organization and the user that the key belongs to.
    pub(super) fn owners(&self) -> (OrgId, UserId) {
        let state = self.state();
        (state.entitlements.org.id, state.entitlements.user)
    }

    /// Decides one request with this key: checks everything, then takes.
    pub(super) fn decide(
        self: &Arc<Self>,
        request: DecideRequest<'_>,
        dirty: &DirtyKeys,
        principals: &CachedPrincipals,
    ) -> Decision {
        let mut state = self.state();
        let principal = self.principal(&mut state, principals);
        if let Some(refusal) = state.authenticate(request, &self.digest) {
            return Decision::Denied { refusal, principal: Some(principal), rate_limit: None };
        }
        // Refilled for a denied request too: its answer shows the tokens and times as of now.
        state.bucket = state.bucket.refill(state.quota(), request.now);
        match self.take(&mut state, request) {
            Ok((permit, in_flight)) => {
                self.mark_dirty(&mut state, dirty);
                let rate_limit = self.status_of(&state, in_flight);
                Decision::Admitted(Admitted {
                    principal,
                    rate_limit,
                    number: state.uses,
                    provisional: false,
                    validity: Validity::new(*request.digest, state.valid_until(request.digest, &self.digest)),
                    permit: crate::Permit::Embedded(permit),
                })
            }
            Err(refusal) => Decision::Denied {
                refusal,
                principal: Some(principal),
                rate_limit: Some(self.status_of(&state, state.entitlements.org.in_flight())),
            },
        }
    }

    /// Makes the remaining checks, then takes the slots and a token.
    fn take(&self, state: &mut KeyState, request: DecideRequest<'_>) -> Result<(Permit, u32), Refusal> {
        if state.entitlements.org.is_suspended() {
            return Err(Refusal::OrgSuspended);
        }
        if state.entitlements.withdrawn {
            return Err(Refusal::Forbidden);
        }
        if let Some(refusal) = request.access.refusal(&state.entitlements.permissions) {
            return Err(refusal);
        }
        if let Some(refusal) = state.terms.as_deref().and_then(|terms| request.access.refusal_by(&terms.policy)) {
            return Err(refusal);
        }
        // The token is looked for before the slot is acquired, and taken after it: a request that is denied for its
        // rate never holds a slot, not even for a moment, and one that is denied for its slot keeps its token.
        let taken = state.bucket.try_take(state.quota(), request.now).map_err(|_| Refusal::RateLimited)?;
        let slots = Permit::acquire(state.terms.as_deref(), &state.entitlements.org)?;
        state.bucket = taken;
        state.uses += 1;
        state.last_used = Some(request.now).into();
        Ok(slots)
    }

    /// Checks whether a credential that was admitted by this record is still valid.
    pub(super) fn check_credential(&self, digest: &KeyDigest, now: Micros) -> CredentialStatus {
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
    pub(super) fn rate_limit_status(&self, now: Micros) -> RateLimitStatus {
        let mut state = self.state();
        state.bucket = state.bucket.refill(state.quota(), now);
        self.status_of(&state, state.entitlements.org.in_flight())
    }

    fn status_of(&self, state: &KeyState, in_flight: u32) -> RateLimitStatus {
        let quota = state.quota();
        RateLimitStatus {
            quota,
            remaining: state.bucket.remaining(quota),
            full_in_us: state.bucket.full_in_us(quota),
            token_in_us: state.bucket.token_in_us(quota),
            concurrent: state.entitlements.org.limit(),
            in_flight,
            key_slots: state.terms.as_deref().and_then(KeyTerms::slot_status),
        }
    }

    /// Counts a use that the state file lacks, and all uses before it. Returns false when the file has it.
    pub(super) fn replay(self: &Arc<Self>, time: Micros, number: u64, dirty: &DirtyKeys) -> bool {
        let mut state = self.state();
        let counted = state.replay(time, number);
        if counted {
            self.mark_dirty(&mut state, dirty);
        }
        counted
    }

    /// Takes over what [`KeyState::merged_usage`] says.
    pub(super) fn merge_usage(self: &Arc<Self>, export: &KeyExport, now: Micros, dirty: &DirtyKeys) {
        let mut state = self.state();
        let Usage { bucket, last_used, uses, .. } = state.merged_usage(export, now);
        (state.bucket, state.last_used, state.uses) = (bucket, last_used.into(), uses);
        self.mark_dirty(&mut state, dirty);
    }

    /// Sets or removes the key's own quota, and applies the quota that is then in force.
    pub(super) fn set_quota(self: &Arc<Self>, own: Option<Quota>, default: Quota, now: Micros, dirty: &DirtyKeys) {
        let mut state = self.state();
        state.terms = KeyTerms::boxed(own, state.policy(), state.terms.as_deref());
        state.apply_quota(default.in_force(own), now);
        self.mark_dirty(&mut state, dirty);
    }

    /// Applies another configured quota, or, to a key with a quota of its own, whether the configured one is strict.
    pub(super) fn set_default_quota(self: &Arc<Self>, default: Quota, now: Micros, dirty: &DirtyKeys) {
        let mut state = self.state();
        let quota = default.in_force(state.own_quota());
        if state.quota() != quota {
            state.apply_quota(quota, now);
            self.mark_dirty(&mut state, dirty);
        }
    }

    /// Applies a change of the key's user.
    pub(super) fn apply_user(&self, user: &Arc<UserEntitlements>) {
        let mut state = self.state();
        state.entitlements = Arc::clone(user);
        state.principal = None;
    }

    /// Revokes the key; the first time of several stands.
    pub(super) fn revoke(&self, at: Micros) {
        let mut state = self.state();
        state.revoked = state.revoked.get().or(Some(at)).into();
    }

    /// Replaces the current secret.
    pub(super) fn rotate(&self, digest: KeyDigest, at: Micros, previous_until: Micros) {
        self.secrets(&mut self.state()).rotate(digest, at, previous_until);
    }

    /// Notes a digest that the key had before its last rotation.
    pub(super) fn add_replaced_digest(&self, digest: KeyDigest) {
        self.secrets(&mut self.state()).replaced.push(digest);
    }

    /// The digests of a key that was rotated, or is about to be.
    fn secrets<'a>(&self, state: &'a mut KeyState) -> &'a mut Secrets {
        state.secrets.get_or_insert_with(|| Box::new(Secrets::new(self.digest)))
    }

    /// The row in the state file; zero when it is not known.
    pub(super) fn row(&self) -> u32 {
        self.row.load(Ordering::Relaxed)
    }

    pub(super) fn set_row(&self, row: u32) {
        self.row.store(row, Ordering::Relaxed);
    }

    /// Takes the usage that is to be written back. The next use makes the record dirty again.
    pub(super) fn take_usage(&self) -> Usage {
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
    pub(super) fn state(&self) -> MutexGuard<'_, KeyState> {
        self.state.lock()
    }
}

impl DirtyKeys {
    fn push(&self, record: Arc<KeyRecord>) {
        self.list().push(record);
    }

    /// Adds all keys of another list, which has none of this one.
    pub(super) fn append(&self, other: Self) {
        self.list().append(&mut other.list());
    }

    /// Exchanges the list for `empty`, whose capacity the next uses fill, so that a use allocates nothing.
    pub(super) fn take(&self, empty: Vec<Arc<KeyRecord>>) -> Vec<Arc<KeyRecord>> {
        std::mem::replace(&mut self.list(), empty)
    }

    fn list(&self) -> MutexGuard<'_, Vec<Arc<KeyRecord>>> {
        self.0.lock()
    }
}
