//! Terms that few keys have: a quota of their own, and a policy, with the slots of the key.

use std::sync::Arc;

use domain::clock::Micros;
use domain::key::policy::{Disabled, KeyPolicy};
use domain::quota::Quota;
use domain::refusal::Refusal;

use super::key_record::KeyRecord;
use super::key_slots::KeySlots;
use crate::{ChangeError, DecideRequest};

/// Terms of one key, which nearly no key has: in a box.
#[derive(Debug, Default)]
pub(super) struct KeyTerms {
    /// In place of the configured one.
    pub(super) quota: Option<Quota>,
    pub(super) policy: KeyPolicy,
    /// Present while the policy has `concurrent`, and while requests hold slots of it.
    pub(super) slots: Option<Arc<KeySlots>>,
}

impl KeyTerms {
    /// The terms that follow `before`, in a box; none when nothing in them is the key's own.
    pub(super) fn boxed(
        quota: Option<Quota>,
        policy: Option<Box<KeyPolicy>>,
        before: Option<&Self>,
    ) -> Option<Box<Self>> {
        let policy = policy.map(|policy| *policy).unwrap_or_default();
        let kept = before.and_then(|before| before.slots.clone());
        // Requests that are open count against a limit that is set again.
        let slots = if policy.concurrent.is_some() {
            Some(kept.unwrap_or_default())
        } else {
            kept.filter(|slots| slots.in_flight() > 0)
        };
        let is_own = quota.is_some() || !policy.is_empty() || slots.is_some();
        is_own.then(|| Box::new(Self { quota, policy, slots }))
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
}

impl KeyRecord {
    /// Sets or removes the policy.
    pub(super) fn set_policy(&self, policy: Option<Box<KeyPolicy>>) {
        let mut state = self.state();
        state.terms = KeyTerms::boxed(state.own_quota(), policy, state.terms.as_deref());
        state.principal = None;
    }

    /// Disables a key that was not used, created or enabled since a time.
    ///
    /// # Errors
    /// [`ChangeError::InUse`]: it was, and nothing is changed.
    pub(super) fn disable_unused(&self, since: Micros, disabled: Disabled) -> Result<(), ChangeError> {
        let mut state = self.state();
        let mut policy = state.policy().map(|policy| *policy).unwrap_or_default();
        if self.position.created.max(state.last_used.get().max(policy.enabled).unwrap_or_default()) >= since {
            return Err(ChangeError::InUse(self.id()));
        }
        policy.disabled = policy.disabled.or(Some(disabled));
        state.terms = KeyTerms::boxed(state.own_quota(), policy.boxed(), state.terms.as_deref());
        Ok(())
    }

    /// Takes a disabling back that was not committed.
    pub(super) fn undo_disabling(&self, disabled: Disabled) {
        let mut state = self.state();
        let mut policy = state.policy().map(|policy| *policy).unwrap_or_default();
        if policy.disabled == Some(disabled) {
            policy.disabled = None;
            state.terms = KeyTerms::boxed(state.own_quota(), policy.boxed(), state.terms.as_deref());
        }
    }
}
