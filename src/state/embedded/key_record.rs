//! Key record for decisions.
//!
//! # Why a lock and not atomics
//!
//! The mutable part of a key ([`KeyState`]) is behind one short lock in its record. A bucket needs two words, level and
//! time, to be exact for every quota, and they must change together with the number of the use. Above all, the same
//! critical section puts every decision either wholly before or wholly after a revocation, a rotation or a change of the
//! user: everything is checked, then taken, under it. The lock is never held over an await, and a decision holds it for
//! about as long as two contended atomics would cost. Two requests wait for each other only when they carry the same key.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::clock::Micros;
use crate::identity::UserId;
use crate::key::{KeyDigest, KeyId};
use crate::quota::{Quota, RateLimitStatus};
use crate::refusal::Refusal;
use crate::state::bucket::Bucket;
use crate::state::{
    Admitted, CredentialStatus, DecideRequest, Decision, Key, KeyExport, Permit, RevocationEntry, RevokedBy, Validity,
};

use super::entitlements::{Secrets, UserEntitlements};
use super::key_state::{KeyState, Usage};
use super::org_record::{self, OrgRecord};

/// A key: its immutable part, and a lock around the mutable part.
pub(super) struct KeyRecord {
    pub(super) id: KeyId,
    pub(super) org: Arc<OrgRecord>,
    user: UserId,
    name: Box<str>,
    imported: bool,
    /// True for a session quota key: it meters the requests of its user's sessions and has no secret.
    pub(super) session_quota_key: bool,
    created: Micros,
    state: Mutex<KeyState>,
}

/// The keys whose usage changed since it was last written back, each once.
#[derive(Default)]
pub(super) struct DirtyKeys(Mutex<Vec<Arc<KeyRecord>>>);

impl KeyRecord {
    pub(super) fn new(
        key: &Key,
        org: Arc<OrgRecord>,
        user: &UserEntitlements,
        secrets: Secrets,
        quota: Quota,
        bucket: Bucket,
    ) -> Self {
        let state = KeyState {
            secrets,
            revoked: key.revoked,
            user_removed: user.removed,
            principal: user.principal((!key.session_quota_key).then_some(key.id), key.user, &org),
            permissions: Arc::clone(&user.permissions),
            own_quota: key.quota,
            quota,
            bucket,
            last_used: key.last_used,
            uses: key.uses,
            dirty: false,
        };
        Self {
            id: key.id,
            org,
            user: key.user,
            name: key.name.as_str().into(),
            imported: key.imported,
            session_quota_key: key.session_quota_key,
            created: key.created,
            state: Mutex::new(state),
        }
    }

    /// Decides one request with this key: checks everything, then takes.
    pub(super) fn decide(self: &Arc<Self>, request: DecideRequest<'_>, dirty: &DirtyKeys) -> Decision {
        let mut state = self.state();
        if let Some(refusal) = state.authenticate(request) {
            return Decision::Denied { refusal, principal: Some(Arc::clone(&state.principal)), rate_limit: None };
        }
        // Refilled for a denied request too: its answer shows the tokens and times as of now.
        state.bucket = state.bucket.refill(state.quota, request.now);
        match self.take(&mut state, request) {
            Ok((permit, in_flight)) => {
                self.mark_dirty(&mut state, dirty);
                let rate_limit = self.status_of(&state, in_flight);
                Decision::Admitted(Admitted {
                    principal: Arc::clone(&state.principal),
                    rate_limit,
                    number: state.uses,
                    provisional: false,
                    validity: Validity::new(*request.digest, state.secrets.valid_until(request.digest)),
                    permit: Permit::Embedded(permit),
                })
            }
            Err(refusal) => Decision::Denied {
                refusal,
                principal: Some(Arc::clone(&state.principal)),
                rate_limit: Some(self.status_of(&state, self.org.in_flight())),
            },
        }
    }

    /// Makes the remaining checks, then takes a slot and a token.
    fn take(&self, state: &mut KeyState, request: DecideRequest<'_>) -> Result<(org_record::Permit, u32), Refusal> {
        if self.org.is_suspended() {
            return Err(Refusal::OrgSuspended);
        }
        if let Some(refusal) = request.access.refusal(&state.permissions) {
            return Err(refusal);
        }
        // The token is looked for before the slot is acquired, and taken after it: a request that is denied for its rate
        // never holds a slot, not even for a moment, and one that is denied for its slot keeps its token.
        let taken = state.bucket.try_take(state.quota, request.now).map_err(|_| Refusal::RateLimited)?;
        let slot = self.org.acquire_slot().ok_or(Refusal::TooManyInFlight)?;
        state.bucket = taken;
        state.uses += 1;
        state.last_used = Some(request.now);
        Ok(slot)
    }

    /// Checks whether a credential that was admitted by this record is still valid.
    pub(super) fn check_credential(&self, digest: &KeyDigest, now: Micros) -> CredentialStatus {
        let state = self.state();
        let until = state.secrets.valid_until(digest);
        let revoked = [
            (state.revoked.is_some(), RevokedBy::Key),
            (until <= now, RevokedBy::Secret),
            (state.user_removed, RevokedBy::User),
            (self.org.is_suspended(), RevokedBy::Org),
        ];
        let reason = revoked.into_iter().find_map(|(is_revoked, reason)| is_revoked.then_some(reason));
        reason.map_or(CredentialStatus::Valid(until), CredentialStatus::Revoked)
    }

    /// The secrets that are valid, as an entry of the revocation log.
    pub(super) fn secrets_entry(&self) -> RevocationEntry {
        let state = self.state();
        RevocationEntry::Secrets { key: self.id, current: state.secrets.current, previous: state.secrets.previous }
    }

    /// The rate-limit status at `now`. Takes nothing.
    pub(super) fn rate_limit_status(&self, now: Micros) -> RateLimitStatus {
        let mut state = self.state();
        state.bucket = state.bucket.refill(state.quota, now);
        self.status_of(&state, self.org.in_flight())
    }

    fn status_of(&self, state: &KeyState, in_flight: u32) -> RateLimitStatus {
        RateLimitStatus {
            quota: state.quota,
            remaining: state.bucket.remaining(state.quota),
            full_in_us: state.bucket.full_in_us(state.quota),
            token_in_us: state.bucket.token_in_us(state.quota),
            concurrent: self.org.limit(),
            in_flight,
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

    /// Sets or removes the key's own quota, and applies the quota that is then in force.
    pub(super) fn set_quota(self: &Arc<Self>, own: Option<Quota>, default: Quota, now: Micros, dirty: &DirtyKeys) {
        let mut state = self.state();
        state.own_quota = own;
        state.apply_quota(default.in_force(own), now);
        self.mark_dirty(&mut state, dirty);
    }

    /// Applies another configured quota, or, to a key with a quota of its own, whether the configured one is strict.
    pub(super) fn set_default_quota(self: &Arc<Self>, default: Quota, now: Micros, dirty: &DirtyKeys) {
        let mut state = self.state();
        let quota = default.in_force(state.own_quota);
        if state.quota != quota {
            state.apply_quota(quota, now);
            self.mark_dirty(&mut state, dirty);
        }
    }

    /// Applies a change of the key's user.
    pub(super) fn apply_user(&self, user: &UserEntitlements) {
        let mut state = self.state();
        state.permissions = Arc::clone(&user.permissions);
        state.principal = user.principal((!self.session_quota_key).then_some(self.id), self.user, &self.org);
        state.user_removed = user.removed;
    }

    /// Revokes the key; the first time of several stands.
    pub(super) fn revoke(&self, at: Micros) {
        self.state().revoked.get_or_insert(at);
    }

    /// Replaces the current secret.
    pub(super) fn rotate(&self, digest: KeyDigest, at: Micros, previous_until: Micros) {
        self.state().secrets.rotate(digest, at, previous_until);
    }

    /// The record as management sees it.
    pub(super) fn view(&self) -> Key {
        let state = self.state();
        Key {
            id: self.id,
            org: self.org.id,
            user: self.user,
            name: self.name.as_ref().to_owned(),
            imported: self.imported,
            session_quota_key: self.session_quota_key,
            created: self.created,
            rotated: state.secrets.rotated,
            previous_until: state.secrets.previous_until,
            revoked: state.revoked,
            quota: state.own_quota,
            last_used: state.last_used,
            uses: state.uses,
        }
    }

    /// Notes a digest that the key had before its last rotation.
    pub(super) fn add_replaced_digest(&self, digest: KeyDigest) {
        self.state().secrets.replaced.push(digest);
    }

    /// All digests that the key has or had.
    pub(super) fn digests(&self) -> Vec<KeyDigest> {
        let state = self.state();
        state.secrets.replaced.iter().copied().chain([state.secrets.current]).collect()
    }

    /// The whole key.
    pub(super) fn export(&self) -> KeyExport {
        let key = self.view();
        let state = self.state();
        let digest = state.secrets.current;
        let previous = state.secrets.previous.map(|(previous, _)| previous);
        let replaced = state.secrets.replaced.iter().copied().filter(|other| Some(*other) != previous).collect();
        let (bucket, quota) = (state.bucket, state.quota);
        KeyExport { key, digest, previous, replaced, bucket, quota }
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

    /// A panic under this lock cannot leave the state half changed: it is only assigned to. So a poisoned lock is good.
    fn state(&self) -> MutexGuard<'_, KeyState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl DirtyKeys {
    fn push(&self, record: Arc<KeyRecord>) {
        self.list().push(record);
    }

    /// Exchanges the list for `empty`, whose capacity the next uses fill, so that a use allocates nothing.
    pub(super) fn take(&self, empty: Vec<Arc<KeyRecord>>) -> Vec<Arc<KeyRecord>> {
        std::mem::replace(&mut self.list(), empty)
    }

    fn list(&self) -> MutexGuard<'_, Vec<Arc<KeyRecord>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
