//! A key as it was last read: what its record says within one version of it, and so need not be read again.
//!
//! Nothing here lets anybody in: every decision names the versions it was made from, and Redis takes no other.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::clock::{self, Micros};
use crate::identity::{AuthMethod, Permission, Principal, PrincipalHeaders};
use crate::key::{KeyDigest, OrgTag};
use crate::quota::Quota;
use crate::refusal::Refusal;
use crate::state::bucket::Bucket;
use crate::state::redis::record_codec::{StoredKey, StoredOrg, Version};
use crate::state::redis::slots::lease::SlotLease;
use crate::state::{DecideRequest, Defaults};

/// A key and its organization, as of these versions.
pub(in crate::state::redis) struct CachedKey {
    /// The digest that led here.
    pub(in crate::state::redis) digest: KeyDigest,
    /// The name of the key's record.
    pub(in crate::state::redis) record: Box<[u8]>,
    pub(in crate::state::redis) key_version: Version,
    pub(in crate::state::redis) org_version: Version,
    pub(in crate::state::redis) principal: Arc<Principal>,
    permissions: Box<[Permission]>,
    secret: Secret,
    revoked: bool,
    user_removed: bool,
    suspended: bool,
    /// The limits of those who have none of their own, as they were when this was made.
    pub(in crate::state::redis) defaults: Defaults,
    /// The quota in force.
    pub(in crate::state::redis) quota: Quota,
    /// The concurrency in force.
    pub(in crate::state::redis) concurrent: u32,
    pub(in crate::state::redis) lease: Arc<SlotLease>,
    /// Kept when the rest is read anew.
    pub(in crate::state::redis) usage: Arc<CachedUsage>,
}

/// Which of the key's secrets was presented.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Secret {
    Current,
    /// The one before the last rotation, valid until then.
    Previous(Micros),
    /// One from before that, or whose overlap was empty.
    Replaced,
}

/// What Redis last said of the key's bucket.
pub(in crate::state::redis) struct CachedUsage(Mutex<UsageState>);

/// - `bucket` is measured in the quota in force.
#[derive(Clone, Copy)]
pub(in crate::state::redis) struct UsageState {
    pub(in crate::state::redis) bucket: Bucket,
    pub(in crate::state::redis) uses: u64,
    /// When Redis last vouched for the key, by our own clock.
    pub(in crate::state::redis) seen: Micros,
    /// The bucket that counts while Redis is away; none while it is not.
    pub(in crate::state::redis) share: Option<Bucket>,
    pub(in crate::state::redis) debt: UnreportedUses,
}

/// Uses that were admitted without Redis, since nothing was owed.
///
/// - Redis is told of all that there ever were, under a name that is used for nothing else, and takes what it was not
///   told before: so it can be told again when an answer was lost, and no use counts twice.
#[derive(Clone, Copy, Default)]
pub(in crate::state::redis) struct UnreportedUses {
    /// The name. When all was paid, the next debt has another one: what Redis noted of this one expires.
    pub(in crate::state::redis) name: [u8; 8],
    /// How many there were.
    pub(in crate::state::redis) total: u64,
    /// How many of them Redis has.
    pub(in crate::state::redis) paid: u64,
}

impl UnreportedUses {
    /// How many Redis does not have.
    pub(in crate::state::redis) fn owed(self) -> u64 {
        self.total - self.paid
    }
}

impl CachedKey {
    /// What a presented digest leads to.
    pub(in crate::state::redis) fn new(
        defaults: Defaults,
        record: String,
        digest: &KeyDigest,
        key: &StoredKey,
        org: &StoredOrg,
        lease: Arc<SlotLease>,
        usage: Option<Arc<CachedUsage>>,
    ) -> Self {
        let (user_id, org_id) = (key.key.user, key.key.org);
        let key_id = (!key.key.session_quota_key).then_some(key.key.id);
        let method = if key.key.session_quota_key { AuthMethod::Session } else { AuthMethod::ApiKey };
        let quota = key.key.quota.unwrap_or(defaults.quota);
        let headers = PrincipalHeaders::new(user_id, org_id, key_id, &key.permissions);
        let principal = Principal { key_id, user_id, org_id, method, headers };
        Self {
            digest: *digest,
            record: record.into_bytes().into(),
            key_version: key.live.version,
            org_version: org.version,
            principal: Arc::new(principal),
            permissions: key.permissions.clone().into(),
            secret: Secret::of(digest, key),
            revoked: key.key.revoked.is_some(),
            user_removed: key.user_removed,
            suspended: org.org.suspended,
            defaults,
            quota,
            concurrent: org.org.concurrent.unwrap_or(defaults.concurrent),
            lease,
            usage: usage.unwrap_or_else(|| Arc::new(CachedUsage::new(key, quota))),
        }
    }

    /// The tag of its organization.
    pub(in crate::state::redis) fn tag(&self) -> OrgTag {
        self.lease.tag
    }

    /// Why the records refuse the request, if they do. Time and what is counted are Redis's to judge.
    pub(in crate::state::redis) fn refuses(&self, ask: &DecideRequest<'_>) -> Option<Refusal> {
        if self.revoked {
            Some(Refusal::Revoked)
        } else if self.secret == Secret::Replaced {
            Some(Refusal::Expired)
        } else if self.user_removed {
            Some(Refusal::UserRemoved)
        } else if self.suspended {
            Some(Refusal::OrgSuspended)
        } else {
            ask.access.refusal(&self.permissions)
        }
    }

    /// Until when the presented secret is valid.
    pub(in crate::state::redis) fn valid_until(&self) -> Micros {
        match self.secret {
            Secret::Current => FOREVER,
            Secret::Previous(until) => until,
            Secret::Replaced => Micros(0),
        }
    }
}

/// Beyond any time that a clock shows, and exact in a double.
const FOREVER: Micros = Micros(crate::quota::EXACT);

impl Secret {
    fn of(digest: &KeyDigest, key: &StoredKey) -> Self {
        let until = key.key.previous_until.filter(|until| Some(*until) > key.key.rotated);
        if *digest == key.digest {
            Self::Current
        } else {
            let previous = key.previous.filter(|previous| previous == digest).and(until);
            previous.map_or(Self::Replaced, Self::Previous)
        }
    }
}

impl CachedUsage {
    fn new(key: &StoredKey, quota: Quota) -> Self {
        let (bucket, uses) = (key.live.bucket.converted(key.live.per_us, quota), key.key.uses);
        Self(Mutex::new(UsageState { bucket, uses, seen: clock::now(), share: None, debt: UnreportedUses::default() }))
    }

    /// What Redis says now.
    pub(in crate::state::redis) fn heard(&self, level: u64, uses: u64, now: Micros) {
        let mut told = self.told();
        told.bucket = Bucket { level, at: now };
        told.uses = uses;
        told.seen = now;
        told.share = None;
    }

    /// What Redis is to be told of, if there is anything.
    pub(in crate::state::redis) fn debt(&self) -> Option<UnreportedUses> {
        Some(self.told().debt).filter(|debt| debt.owed() > 0)
    }

    /// Redis has all of a debt as it was told.
    pub(in crate::state::redis) fn paid(&self, debt: UnreportedUses) {
        let mut told = self.told();
        if told.debt.name == debt.name {
            told.debt.paid = told.debt.paid.max(debt.total);
        }
    }

    /// One more use that Redis does not know of; how many these are now. The name is for a debt that begins with it.
    pub(in crate::state::redis) fn owe(told: &mut UsageState, name: [u8; 8]) -> u64 {
        if told.debt.owed() == 0 {
            told.debt = UnreportedUses { name, total: 0, paid: 0 };
        }
        told.debt.total += 1;
        told.debt.owed()
    }

    /// Nothing that holds this lock can leave it half changed: it only assigns.
    pub(in crate::state::redis) fn told(&self) -> MutexGuard<'_, UsageState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
