//! The sweep of unused keys: disables those whose last use, creation and enabling are all older than they may be.
//!
//! - It goes by the clock of the state, and the transaction that disables a key asks that once more. A gateway whose
//!   clock does not agree with it sweeps nothing.
//! - Of an organization it disables a tenth of the active keys in one run at most, or [`FEW`]. Where more seem to be
//!   unused it disables none, and says so: rather the journal, the clock or the policy is wrong than so many keys are.

use std::time::Duration;

use super::actor::AuditActor;
use super::audited_change::{Target, apply_change};
use super::{Actor, Management, ManagementError};
use domain::clock::Micros;
use domain::key::policy::{Disabled, DisabledBy, Field, PolicyPatch};
use state::{Change, KeyList, Org, PolicyScope, UnusedKeys};

/// Organizations and keys that are read at a time.
const PAGE: usize = 500;
/// Keys that a run may disable in any organization: a tenth of a small one would be none.
const FEW: usize = 10;

/// Disables the keys that are unused at `now`, a time of this process. A use that comes between the look at a key
/// and the change wins. Returns the number of keys that were disabled. Repeating the sweep, also at several
/// gateways, changes nothing.
///
/// # Errors
/// The state or the journal is unavailable: some keys may have been disabled, the others are with the next sweep.
pub async fn sweep_unused_keys(management: &Management, actor: &Actor, now: Micros) -> Result<u64, ManagementError> {
    if !management.state.clocks_agree() {
        tracing::warn!(
            "unused keys are not looked for: the clock of Redis is unknown, or differs from this machine's by more \
             than a minute"
        );
        return Ok(0);
    }
    let now = management.state.time(now);
    let mut disabled = 0;
    let mut from = Some(0);
    while let Some(position) = from {
        let page = management.state.page_of_orgs(position, PAGE).await?;
        for org in page.items {
            if let Some(unused) = unused_keys_of(management, &org) {
                disabled += sweep_org(management, &org, unused, AuditActor { actor, now }).await?;
            }
        }
        from = page.next;
    }
    Ok(disabled)
}

/// The time without a use after which keys of an organization are disabled; none: never.
pub(super) fn unused_keys_of(management: &Management, org: &Org) -> Option<Duration> {
    match org.policy.unused_keys {
        Some(UnusedKeys::Never) => None,
        Some(UnusedKeys::After(time)) => Some(time),
        None => management.state.bounds().unused_keys,
    }
}

async fn sweep_org(
    management: &Management,
    org: &Org,
    unused: Duration,
    by: AuditActor<'_>,
) -> Result<u64, ManagementError> {
    let since = by.now.before(unused);
    let found = find_unused(management, org, since).await?;
    let most = FEW.max(found.active / 10);
    if found.unused.len() > most {
        tracing::error!(
            org = %org.id,
            unused = found.unused.len(),
            active = found.active,
            "more than a tenth of the keys of an organization seem to be unused; none was disabled. Look at them \
             with `keygate key list --unused-for`, and disable those that are not needed"
        );
        return Ok(0);
    }
    let mut disabled = 0;
    for key in &found.unused {
        disabled += u64::from(disable_unused(management, key, since, by).await?);
    }
    Ok(disabled)
}

/// The keys of an organization that are unused since a time.
async fn find_unused(management: &Management, org: &Org, since: Micros) -> Result<Found, ManagementError> {
    let list = KeyList { org: org.id, owner: None, newest_first: false };
    let mut found = Found::default();
    let mut after = None;
    loop {
        let page = management.state.page_of_keys(list, after, PAGE).await?;
        for key in page.items.into_iter().filter(is_active) {
            found.active += 1;
            if is_unused(&key, since) {
                found.unused.push(key);
            }
        }
        if page.next.is_none() {
            return Ok(found);
        }
        after = page.next;
    }
}

/// Disables a key; false when it was used, revoked or removed meanwhile.
async fn disable_unused(
    management: &Management,
    key: &state::Key,
    since: Micros,
    by: AuditActor<'_>,
) -> Result<bool, ManagementError> {
    let disabled = Disabled { at: by.now, by: DisabledBy::Unused };
    let patch = PolicyPatch { disabled: Field::Set(disabled), ..PolicyPatch::default() };
    let allowed = PolicyScope::Unused(since);
    let change = Change::set_key_policy(key.id, Box::new(patch), allowed);
    match apply_change(management, "key.disable_unused", Target::of_key(key), change, by).await {
        Ok(()) => Ok(true),
        Err(ManagementError::InUse(_) | ManagementError::Revoked(_) | ManagementError::NoKey(_)) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Keys of an organization, as a sweep finds them.
#[derive(Default)]
struct Found {
    /// Number of keys that are neither revoked nor disabled.
    active: usize,
    /// Those of them that are unused.
    unused: Vec<state::Key>,
}

/// Returns whether a key is neither revoked nor disabled.
pub(super) fn is_active(key: &state::Key) -> bool {
    let is_disabled = key.policy.as_deref().is_some_and(|policy| policy.disabled.is_some());
    key.revoked.is_none() && !is_disabled
}

/// Returns whether an active key was not used, created or enabled since a time.
fn is_unused(key: &state::Key, since: Micros) -> bool {
    last_use(key) < since
}

/// Time from which a key counts as unused: of its last use, its creation or its enabling.
pub(super) fn last_use(key: &state::Key) -> Micros {
    let enabled = key.policy.as_deref().and_then(|policy| policy.enabled);
    key.created.max(key.last_used.max(enabled).unwrap_or_default())
}
