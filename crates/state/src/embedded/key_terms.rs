//! Terms that few keys have: a quota of their own, and a policy.

use domain::clock::Micros;
use domain::identity::Permission;
use domain::key::policy::KeyPolicy;
use domain::quota::Quota;
use domain::refusal::Refusal;

use crate::{DecideRequest, RouteAccess};

/// Terms of a key of its own. In a box, which nearly no key has.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct KeyTerms {
    /// In place of the configured one.
    pub(super) quota: Option<Quota>,
    pub(super) policy: KeyPolicy,
}

impl KeyTerms {
    /// The terms, in a box; none when nothing in them is the key's own.
    pub(super) fn boxed(quota: Option<Quota>, policy: Option<Box<KeyPolicy>>) -> Option<Box<Self>> {
        let policy = policy.map(|policy| *policy).unwrap_or_default();
        (quota.is_some() || !policy.is_empty()).then(|| Box::new(Self { quota, policy }))
    }

    /// The time from which the key is refused.
    pub(super) fn expires(&self) -> Option<Micros> {
        self.policy.expires
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

    /// The refusal of a route that the key's user may use.
    pub(super) fn refusal_of_access(&self, access: RouteAccess<'_>) -> Option<Refusal> {
        access.refusal_by(&self.policy)
    }

    /// The permissions of the key, of a user with these.
    pub(super) fn permissions(&self, of_user: &[Permission]) -> Vec<Permission> {
        self.policy.effective_permissions(of_user)
    }
}
