//! Updates of one field.

use control::management::{KeyUpdate, LimitUpdate, OrgUpdate, PolicyUpdate, UserUpdate};
use domain::identity::Permission;

/// Suspends or resumes an organization.
pub fn suspension(suspended: bool) -> OrgUpdate {
    OrgUpdate { suspended: Some(suspended), ..OrgUpdate::default() }
}

/// Bounds the requests in flight of an organization; none: as configured.
pub fn bound(concurrent: Option<u32>) -> OrgUpdate {
    OrgUpdate { concurrent: Some(concurrent), ..OrgUpdate::default() }
}

/// Gives a user these permissions.
pub fn permission(permissions: Vec<Permission>) -> UserUpdate {
    UserUpdate { permissions: Some(permissions), ..UserUpdate::default() }
}

/// Makes another person responsible for a service.
pub fn responsibility(person: &str) -> UserUpdate {
    UserUpdate { responsible: Some(person.to_owned()), ..UserUpdate::default() }
}

/// Limits a key; none: as configured.
pub fn limit(limits: Option<LimitUpdate>) -> KeyUpdate {
    KeyUpdate { limits: Some(limits.map(Into::into)), ..KeyUpdate::default() }
}

/// Changes the policy of a key.
pub fn policy_change(policy: PolicyUpdate) -> KeyUpdate {
    KeyUpdate { policy, ..KeyUpdate::default() }
}
