//! The policies of a key that a change may make of the one before it.

use domain::clock::Micros;
use domain::key::KeyId;
use domain::key::policy::{DisabledBy, KeyPolicy, PolicyPatch};

use super::{ChangeError, OrgPolicy, TooLate};

/// The policies that a change may make of the one before it, by the one who makes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PolicyScope {
    /// The operator: any.
    Operator,
    /// An administrator of the organization: any, but what the operator disabled stays disabled, and the expiry is put
    /// off no further than that of a new key may be.
    Admin {
        /// Time of the change.
        at: Micros,
    },
    /// The owner: none that is wider, but for a key that is enabled and was not disabled by the operator.
    Owner,
    /// The sweep of unused keys: a key that was not used, created or enabled since this time.
    Unused(Micros),
    /// The report of a use that was admitted without Redis: enables what the sweep has disabled, and nothing else.
    Used,
}

impl PolicyScope {
    /// Returns whether the policy of the organization bounds the change.
    pub(super) fn is_bounded(self) -> bool {
        matches!(self, Self::Admin { .. })
    }

    /// The policy that a change makes of the one before, in an organization with the policy `of_org`; none of an empty
    /// one.
    ///
    /// # Errors
    /// [`ChangeError::InvalidPolicy`]; [`ChangeError::InUse`]; [`ChangeError::Widened`], [`ChangeError::TooLate`] and
    /// [`ChangeError::DisabledByOperator`] when it is wider than allowed.
    pub(super) fn apply(
        self,
        key: KeyId,
        patch: &PolicyPatch,
        before: Option<&KeyPolicy>,
        of_org: &OrgPolicy,
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
        if let Self::Admin { at } = self {
            check_expiry(before.expires, after.expires, of_org.max_expiry.map(|max| at.after(max)))?;
        }
        let is_narrower = || KeyPolicy { disabled: after.disabled.or(enabled), ..after.clone() }.is_within(before);
        if self == Self::Owner && !is_narrower() {
            return Err(ChangeError::Widened(key));
        }
        Ok(after.boxed())
    }
}

/// Checks that an expiry is put off no further than to the latest time. The operator, whose policy it is, may.
fn check_expiry(before: Option<Micros>, after: Option<Micros>, latest: Option<Micros>) -> Result<(), TooLate> {
    let is_after = |time: Micros| after.is_none_or(|after| after > time);
    match latest {
        Some(latest) if before.is_some_and(is_after) && is_after(latest) => Err(TooLate { latest }),
        _ => Ok(()),
    }
}
