//! One key as decisions see it.
//!
//! # Why a lock and not atomics
//!
//! What changes about a key is behind one short lock in its record. A bucket needs two words, level and time, to be
//! exact for every quota, and they must change together with the number of the use. Above all, the same critical
//! section puts every decision either wholly before or wholly after a revocation, a rotation or a change of the user:
//! everything is checked, then taken, under it. It is never held over an await, and a decision holds it for about as
//! long as two contended atomics would cost. Two requests wait for each other only when they carry the same key.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::clock::Micros;
use crate::identity::{Permission, Principal, UserId};
use crate::key::{KeyDigest, KeyId};
use crate::quota::{Quota, RateLimitStatus};

use super::grant::{Grant, Secrets};
use super::permit::{self, OrgRecord};
use crate::refusal::Refusal;
use crate::state::bucket::Bucket;
use crate::state::{Admitted, DecideRequest, Decision, Key, KeyExport, Permit};

/// A key: what never changes about it, and what does.
pub(super) struct KeyRecord {
    pub(super) id: KeyId,
    pub(super) org: Arc<OrgRecord>,
    user: UserId,
    name: Box<str>,
    imported: bool,
    /// True for a session quota key: it meters the requests of its user's sessions and has no secret.
    pub(super) session_quota_key: bool,
    created: Micros,
    live: Mutex<Live>,
}

/// What changes about a key.
///
/// - Who holds the lock sees all of a change or none of it.
/// - `bucket` is measured in `quota`.
/// - Whatever was not written back yet is noted: the record is in the list of [`UsedKeys`], or with the writer.
pub(super) struct Live {
    pub(super) secrets: Secrets,
    pub(super) revoked: Option<Micros>,
    pub(super) user_removed: bool,
    pub(super) principal: Arc<Principal>,
    pub(super) permissions: Arc<[Permission]>,
    /// The key's own quota, in place of the configured one.
    pub(super) own_quota: Option<Quota>,
    /// The quota in force.
    pub(super) quota: Quota,
    pub(super) bucket: Bucket,
    pub(super) last_used: Option<Micros>,
    pub(super) uses: u64,
    noted: bool,
}

/// The part of a key that is written back: one moment of it.
pub(super) struct Usage {
    pub(super) bucket: Bucket,
    /// The `per` that the bucket's level is measured in, in microseconds.
    pub(super) per_us: u64,
    pub(super) last_used: Option<Micros>,
    pub(super) uses: u64,
}

/// The keys that changed since they were last written back.
#[derive(Default)]
pub(super) struct UsedKeys(Mutex<Vec<Arc<KeyRecord>>>);

impl KeyRecord {
    pub(super) fn new(
        key: &Key,
        org: Arc<OrgRecord>,
        grant: &Grant,
        secrets: Secrets,
        quota: Quota,
        bucket: Bucket,
    ) -> Self {
        let live = Live {
            secrets,
            revoked: key.revoked,
            user_removed: grant.removed,
            principal: grant.principal((!key.session_quota_key).then_some(key.id), key.user, &org),
            permissions: Arc::clone(&grant.permissions),
            own_quota: key.quota,
            quota,
            bucket,
            last_used: key.last_used,
            uses: key.uses,
            noted: false,
        };
        Self {
            id: key.id,
            org,
            user: key.user,
            name: key.name.as_str().into(),
            imported: key.imported,
            session_quota_key: key.session_quota_key,
            created: key.created,
            live: Mutex::new(live),
        }
    }

    /// Decides one request with this key: checks everything, then takes.
    pub(super) fn decide(self: &Arc<Self>, ask: DecideRequest<'_>, used: &UsedKeys) -> Decision {
        let mut live = self.live();
        if let Some(refusal) = live.unauthenticated(ask) {
            return Decision::Denied { refusal, principal: Some(Arc::clone(&live.principal)), rate_limit: None };
        }
        live.bucket = live.bucket.refilled(live.quota, ask.now);
        match self.take(&mut live, ask) {
            Ok((permit, in_flight)) => {
                self.note(&mut live, used);
                let rate_limit = self.status_of(&live, in_flight);
                Decision::Admitted(Admitted {
                    principal: Arc::clone(&live.principal),
                    rate_limit,
                    number: live.uses,
                    provisional: false,
                    permit: Permit::Embedded(permit),
                })
            }
            Err(refusal) => Decision::Denied {
                refusal,
                principal: Some(Arc::clone(&live.principal)),
                rate_limit: Some(self.status_of(&live, self.org.in_flight())),
            },
        }
    }

    /// Takes a slot and a token when all that is left to check allows it. The token is looked for before the slot is
    /// taken and taken after it, so a refusal never held a slot, not even for a moment.
    fn take(&self, live: &mut Live, ask: DecideRequest<'_>) -> Result<(permit::Permit, u32), Refusal> {
        if self.org.suspended() {
            return Err(Refusal::OrgSuspended);
        }
        if let Some(refusal) = ask.access.refusal(&live.permissions) {
            return Err(refusal);
        }
        let taken = live.bucket.try_take(live.quota, ask.now).map_err(|_| Refusal::RateLimited)?;
        let slot = self.org.enter().ok_or(Refusal::TooManyInFlight)?;
        live.bucket = taken;
        live.uses += 1;
        live.last_used = Some(ask.now);
        Ok(slot)
    }

    /// Where the key stands at `now`, taking nothing.
    pub(super) fn rate_limit_status(&self, now: Micros) -> RateLimitStatus {
        let mut live = self.live();
        live.bucket = live.bucket.refilled(live.quota, now);
        self.status_of(&live, self.org.in_flight())
    }

    fn status_of(&self, live: &Live, in_flight: u32) -> RateLimitStatus {
        RateLimitStatus {
            quota: live.quota,
            remaining: live.bucket.remaining(live.quota),
            full_in_us: live.bucket.full_in_us(live.quota),
            token_in_us: live.bucket.token_in_us(live.quota),
            concurrent: self.org.limit(),
            in_flight,
        }
    }

    /// Counts a use that the durable copy does not know of yet, with all the uses before it. It takes from the bucket
    /// what they took, but at the time of the last of them: the bucket is never fuller than it was. Whether it counted.
    pub(super) fn replay(self: &Arc<Self>, time: Micros, number: u64, used: &UsedKeys) -> bool {
        let mut live = self.live();
        let Some(missing) = number.checked_sub(live.uses).filter(|missing| *missing > 0) else { return false };
        live.bucket = live.bucket.refilled(live.quota, time).charged(live.quota, missing);
        live.uses = number;
        live.last_used = live.last_used.max(Some(time));
        self.note(&mut live, used);
        true
    }

    /// Puts another quota in force: its own, or else the configured one. The tokens of this moment stay.
    pub(super) fn set_quota(self: &Arc<Self>, own: Option<Quota>, default: Quota, now: Micros, used: &UsedKeys) {
        let mut live = self.live();
        live.own_quota = own;
        live.come_under(own.unwrap_or(default), now);
        self.note(&mut live, used);
    }

    /// Puts another configured quota in force, unless the key has one of its own.
    pub(super) fn set_default_quota(self: &Arc<Self>, default: Quota, now: Micros, used: &UsedKeys) {
        let mut live = self.live();
        if live.own_quota.is_none() && live.quota != default {
            live.come_under(default, now);
            self.note(&mut live, used);
        }
    }

    /// Makes the key follow its user.
    pub(super) fn follow(&self, grant: &Grant) {
        let mut live = self.live();
        live.permissions = Arc::clone(&grant.permissions);
        live.principal = grant.principal((!self.session_quota_key).then_some(self.id), self.user, &self.org);
        live.user_removed = grant.removed;
    }

    /// What management sees.
    pub(super) fn view(&self) -> Key {
        let live = self.live();
        Key {
            id: self.id,
            org: self.org.id,
            user: self.user,
            name: self.name.as_ref().to_owned(),
            imported: self.imported,
            session_quota_key: self.session_quota_key,
            created: self.created,
            rotated: live.secrets.rotated,
            previous_until: live.secrets.previous_until,
            revoked: live.revoked,
            quota: live.own_quota,
            last_used: live.last_used,
            uses: live.uses,
        }
    }

    /// All of it, with the digests that lead here.
    pub(super) fn export(&self, digests: Vec<KeyDigest>) -> KeyExport {
        let key = self.view();
        let live = self.live();
        let digest = live.secrets.current;
        let previous = live.secrets.previous.map(|(previous, _)| previous);
        let others = digests.into_iter().filter(|other| *other != digest && Some(*other) != previous);
        let (bucket, per_us) = (live.bucket, live.quota.per_micros());
        KeyExport { key, digest, previous, replaced: others.collect(), bucket, per_us }
    }

    /// What is to be written back. The next use is noted again.
    pub(super) fn usage(&self) -> Usage {
        let mut live = self.live();
        live.noted = false;
        Usage { bucket: live.bucket, per_us: live.quota.per_micros(), last_used: live.last_used, uses: live.uses }
    }

    fn note(self: &Arc<Self>, live: &mut Live, used: &UsedKeys) {
        if !live.noted {
            live.noted = true;
            used.push(Arc::clone(self));
        }
    }

    /// Nothing that holds this lock can leave the record half changed: it only assigns.
    pub(super) fn live(&self) -> MutexGuard<'_, Live> {
        self.live.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Live {
    /// Another quota is in force from now on; the tokens of this moment stay.
    fn come_under(&mut self, quota: Quota, now: Micros) {
        let per_us = self.quota.per_micros();
        self.bucket = self.bucket.refilled(self.quota, now).converted(per_us, quota);
        self.quota = quota;
    }

    /// Why the presented secret does not authenticate its user.
    fn unauthenticated(&self, ask: DecideRequest<'_>) -> Option<Refusal> {
        if self.revoked.is_some() {
            return Some(Refusal::Revoked);
        }
        if !self.secrets.accept(ask.digest, ask.now) {
            return Some(Refusal::Expired);
        }
        self.user_removed.then_some(Refusal::UserRemoved)
    }
}

impl UsedKeys {
    fn push(&self, record: Arc<KeyRecord>) {
        self.list().push(record);
    }

    /// Exchanges the list for `empty`, whose room the next uses take, so that noting them allocates nothing.
    pub(super) fn take(&self, empty: Vec<Arc<KeyRecord>>) -> Vec<Arc<KeyRecord>> {
        std::mem::replace(&mut self.list(), empty)
    }

    fn list(&self) -> MutexGuard<'_, Vec<Arc<KeyRecord>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
