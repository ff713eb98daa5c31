//! Policies of keys in memory, and the part of their changes that comes before the commit.

use domain::clock::Micros;
use domain::key::KeyId;
use domain::key::policy::{Disabled, Field, KeyPolicy};

use super::super::operation::Operation;
use super::Directory;
use crate::{Change, ChangeError, PolicyChange, PolicyScope};

impl Directory {
    /// Makes the part of a change effective that has to be so before it is written: a key that is disabled for being
    /// unused is refused from here on, so that no use comes between the look at its last use and the commit.
    ///
    /// # Errors
    /// [`ChangeError::InUse`].
    pub(in crate::embedded) fn prepare(&self, change: &Change) -> Result<(), ChangeError> {
        let Some((key, since, disabled)) = disabling_of_unused(change) else { return Ok(()) };
        self.key(key).map_or(Ok(()), |record| record.disable_unused(since, disabled))
    }

    /// Takes back what was prepared for a change that was not committed.
    pub(in crate::embedded) fn undo(&self, operation: &Operation) {
        if let Operation::Change(change) = operation
            && let Some((key, _, disabled)) = disabling_of_unused(change)
        {
            self.with_key(key, |record| record.undo_disabling(disabled));
        }
    }

    /// Sets the policy of a key, as the file has it.
    pub(in crate::embedded) fn set_policy(&self, key: KeyId, policy: Option<Box<KeyPolicy>>) {
        self.with_key(key, |record| record.set_policy(policy));
    }
}

/// The key that a change disables for being unused, the time of which a use would keep it, and the mark.
fn disabling_of_unused(change: &Change) -> Option<(KeyId, Micros, Disabled)> {
    let Change::UpdateKey { key, patch } = change.as_made() else { return None };
    let Some(PolicyChange { patch, allowed: PolicyScope::Unused(since) }) = &patch.policy else { return None };
    let Field::Set(disabled) = patch.disabled else { return None };
    Some((*key, *since, disabled))
}
