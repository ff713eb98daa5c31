//! Refusals of a cached key: by its records, and by the clock of this gateway where Redis is not asked.

use std::sync::atomic::Ordering;

use super::key_cache::{CachedKey, PresentedSecret};
use crate::{DecideRequest, Validity};
use domain::clock::Micros;
use domain::key::policy::DisabledBy;
use domain::refusal::Refusal;

impl CachedKey {
    /// The refusal that follows from the records alone. Redis checks time and counters.
    pub(super) fn refusal(&self, request: &DecideRequest<'_>) -> Option<Refusal> {
        self.refusal_of_credential().or_else(|| self.refusal_of_request(request))
    }

    /// The refusal of every request with the presented secret, as far as the records of the key and its user say so.
    pub(super) fn refusal_of_credential(&self) -> Option<Refusal> {
        if self.revoked.load(Ordering::Relaxed) {
            Some(Refusal::Revoked)
        } else if self.secret == PresentedSecret::Replaced {
            Some(Refusal::Expired)
        } else if self.policy.as_deref().is_some_and(|policy| policy.disabled.is_some()) {
            Some(Refusal::KeyDisabled)
        } else if self.user_removed.load(Ordering::Relaxed) {
            Some(Refusal::UserRemoved)
        } else if self.user_suspended {
            Some(Refusal::UserSuspended)
        } else {
            None
        }
    }

    /// The refusal of this request, whose credential is good.
    fn refusal_of_request(&self, request: &DecideRequest<'_>) -> Option<Refusal> {
        let policy = self.policy.as_deref();
        if policy.is_some_and(|policy| !policy.allows_address(request.client)) {
            Some(Refusal::AddressRefused)
        } else if self.org_suspended {
            Some(Refusal::OrgSuspended)
        } else if self.withdrawn {
            Some(Refusal::Forbidden)
        } else {
            // The permissions are those of the key and its user.
            let refusal = request.access.refusal(&self.permissions);
            refusal.or_else(|| (request.cost.tokens() > self.quota.burst).then_some(Refusal::CostOverLimit))
        }
    }

    /// The refusal of the credential by the records and the clock of this gateway, where Redis is not asked.
    pub(super) fn refusal_of_credential_at(&self, now: Micros) -> Option<Refusal> {
        match self.refusal_of_credential() {
            Some(Refusal::Revoked) => Some(Refusal::Revoked),
            refusal if now < self.valid_until() => refusal,
            _ => Some(self.expired(now)),
        }
    }

    /// The refusal of a request by the records and the clock of this gateway.
    pub(super) fn refusal_at(&self, request: &DecideRequest<'_>) -> Option<Refusal> {
        self.refusal_of_credential_at(request.now).or_else(|| self.refusal_of_request(request))
    }

    /// Returns whether the key was disabled by the sweep of unused keys.
    pub(super) fn is_disabled_as_unused(&self) -> bool {
        let disabled = self.policy.as_deref().and_then(|policy| policy.disabled);
        disabled.is_some_and(|disabled| disabled.by == DisabledBy::Unused)
    }

    /// Returns whether the organization is suspended.
    pub(super) fn is_of_suspended_org(&self) -> bool {
        self.org_suspended
    }

    /// Validity of the presented secret.
    pub(super) fn validity(&self) -> Validity {
        Validity::new(self.digest, self.valid_until())
    }

    /// The time until which requests with the presented secret are admitted: until its end, or the expiry of the key.
    pub(super) fn valid_until(&self) -> Micros {
        let until = self.secret_valid_until();
        self.policy.as_deref().and_then(|policy| policy.expires).map_or(until, |expires| until.min(expires))
    }

    /// The refusal that a reply of Redis means, of a request at `now`: where the time is over, it may be that of the
    /// secret or that of the key.
    pub(super) fn refusal_of(&self, refusal: Refusal, now: Micros) -> Refusal {
        if refusal == Refusal::Expired { self.expired(now) } else { refusal }
    }

    /// The refusal of a request at `now` where the time is over. The end of the secret is looked at first.
    fn expired(&self, now: Micros) -> Refusal {
        let until = self.secret_valid_until();
        let is_of_secret = until <= self.valid_until() || until <= now;
        if is_of_secret { Refusal::Expired } else { Refusal::KeyExpired }
    }

    /// The time until which the presented secret is valid.
    fn secret_valid_until(&self) -> Micros {
        match self.secret {
            PresentedSecret::Current => Validity::FOREVER,
            PresentedSecret::Previous(until) => until,
            PresentedSecret::Replaced => Micros(0),
        }
    }
}
