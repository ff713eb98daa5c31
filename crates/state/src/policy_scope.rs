//! The policies of a key that a change may make of the one before it.

use domain::clock::Micros;
use domain::key::KeyId;
use domain::key::policy::{DisabledBy, KeyPolicy, PolicyPatch};

use super::ChangeError;

/// The policies that a change may make of the one before it, by the one who makes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PolicyScope {
    /// The operator: any.
    Operator,
    /// An administrator of the organization: any, but what the operator disabled stays disabled.
    Admin,
    /// The owner: none that is wider, but for a key that is enabled and was not disabled by the operator.
    Owner,
    /// The sweep of unused keys: a key that was not used, created or enabled since this time.
    Unused(Micros),
    /// The report of a use that was admitted without Redis: enables what the sweep has disabled, and nothing else.
    Used,
}

impl PolicyScope {
    /// The policy that a change makes of the one before; none of an empty one.
    ///
    /// # Errors
    /// [`ChangeError::InvalidPolicy`]; [`ChangeError::InUse`]; [`ChangeError::Widened`] and
    /// [`ChangeError::DisabledByOperator`] when it is wider than allowed.
    pub(super) fn apply(
        self,
        key: KeyId,
        patch: &PolicyPatch,
        before: Option<&KeyPolicy>,
    ) -> Result<Option<Box<KeyPolicy>>, ChangeError> {
        let none = KeyPolicy::default();
        let before = before.unwrap_or(&none);
        if self == Self::Used && !before.disabled.is_some_and(|disabled| disabled.by == DisabledBy::Unused) {
            return Ok(before.clone().boxed());
        }
        let after = patch.apply(before);
        after.validate().map_err(|reason| ChangeError::InvalidPolicy { key, reason })?;
        if let Self::Unused(since) = self
            && before.enabled.is_some_and(|enabled| enabled >= since)
        {
            return Err(ChangeError::InUse(key));
        }
        let enabled = before.disabled.filter(|_| after.disabled.is_none());
        if self != Self::Operator && enabled.is_some_and(|disabled| disabled.by.is_of_operator()) {
            return Err(ChangeError::DisabledByOperator(key));
        }
        let is_narrower = || KeyPolicy { disabled: after.disabled.or(enabled), ..after.clone() }.is_within(before);
        if self == Self::Owner && !is_narrower() {
            return Err(ChangeError::Widened(key));
        }
        Ok(after.boxed())
    }
}
