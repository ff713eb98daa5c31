//! The sweep of unused keys: disables those whose last use, creation and enabling are all older than they may be.

use std::time::Duration;

use super::actor::AuditActor;
use super::keys::target;
use super::{Actor, Management, ManagementError};
use domain::clock::Micros;
use domain::key::policy::{Disabled, DisabledBy, Field, PolicyPatch};
use state::{Change, KeyList, Org, PolicyScope, UnusedKeys};

/// Organizations and keys that are read at a time.
const PAGE: usize = 500;

impl Management {
    /// Disables the keys that are unused at `now`. A use that comes between the look at a key and the change wins.
    /// Returns the number of keys that were disabled. Repeating the sweep, also at several gateways, changes nothing.
    ///
    /// # Errors
    /// The state or the journal is unavailable: some keys may have been disabled, the others are with the next sweep.
    pub async fn sweep_unused_keys(&self, actor: &Actor, now: Micros) -> Result<u64, ManagementError> {
        let mut disabled = 0;
        let mut from = Some(0);
        while let Some(position) = from {
            let page = self.state.page_of_orgs(position, PAGE).await?;
            for org in page.items {
                if let Some(unused) = self.unused_keys_of(&org) {
                    disabled += self.sweep_org(&org, now.before(unused), AuditActor { actor, now }).await?;
                }
            }
            from = page.next;
        }
        Ok(disabled)
    }

    /// The time without a use after which keys of an organization are disabled; none: never.
    fn unused_keys_of(&self, org: &Org) -> Option<Duration> {
        match org.policy.unused_keys {
            Some(UnusedKeys::Never) => None,
            Some(UnusedKeys::After(time)) => Some(time),
            None => self.state.bounds().unused_keys,
        }
    }

    async fn sweep_org(&self, org: &Org, since: Micros, by: AuditActor<'_>) -> Result<u64, ManagementError> {
        let list = KeyList { org: org.id, owner: None, newest_first: false };
        let mut disabled = 0;
        let mut after = None;
        loop {
            let page = self.state.page_of_keys(list, after, PAGE).await?;
            for key in page.items.iter().filter(|key| is_unused(key, since)) {
                disabled += u64::from(self.disable_unused(key, since, by).await?);
            }
            if page.next.is_none() {
                return Ok(disabled);
            }
            after = page.next;
        }
    }

    /// Disables a key; false when it was used, revoked or removed meanwhile.
    async fn disable_unused(
        &self,
        key: &state::Key,
        since: Micros,
        by: AuditActor<'_>,
    ) -> Result<bool, ManagementError> {
        let disabled = Disabled { at: by.now, by: DisabledBy::Unused };
        let patch = PolicyPatch { disabled: Field::Set(disabled), ..PolicyPatch::default() };
        let allowed = PolicyScope::Unused(since);
        let change = Change::set_key_policy(key.id, Box::new(patch), allowed);
        match self.apply_change("key.disable_unused", target(key), change, by).await {
            Ok(()) => Ok(true),
            Err(ManagementError::InUse(_) | ManagementError::Revoked(_) | ManagementError::NoKey(_)) => Ok(false),
            Err(error) => Err(error),
        }
    }
}

/// Returns whether a key is active and was not used, created or enabled since a time.
fn is_unused(key: &state::Key, since: Micros) -> bool {
    let policy = key.policy.as_deref();
    let enabled = policy.and_then(|policy| policy.enabled);
    let is_disabled = policy.is_some_and(|policy| policy.disabled.is_some());
    let last = key.created.max(key.last_used.max(enabled).unwrap_or_default());
    key.revoked.is_none() && !is_disabled && last < since
}
