//! Operands: normalizes permissions, and looks up the organizations and users that references name.

use super::{Management, ManagementError};
use domain::identity::{OrgId, Permission, UserId};

/// Keys of one operation at most: more than a page of them.
const MAX_KEYS: usize = 200;

impl Management {
    /// Looks up the organization with this id or name.
    pub(super) async fn find_org(&self, reference: &str) -> Result<state::Org, ManagementError> {
        self.look_up_org(reference).await?.ok_or_else(|| ManagementError::NoOrg(reference.to_owned()))
    }

    /// The same; `None` when there is none.
    pub(super) async fn look_up_org(&self, reference: &str) -> Result<Option<state::Org>, ManagementError> {
        Ok(match reference.parse::<OrgId>() {
            Ok(id) => self.state.org(id).await?,
            Err(_) => self.state.org_by_name(reference).await?,
        })
    }

    /// Looks up the user with this id or email address; a removed user is reported as absent.
    pub(super) async fn find_user(&self, org: OrgId, reference: &str) -> Result<state::User, ManagementError> {
        let user = match reference.parse::<UserId>() {
            Ok(id) => self.state.member(org, id).await?.map(|(_, user)| user),
            Err(_) => self.state.user_by_email(org, &reference.to_lowercase()).await?,
        };
        let user = user.filter(|user| user.removed.is_none());
        user.ok_or_else(|| ManagementError::NoUser(reference.to_owned()))
    }
}

/// Sorts permissions and removes duplicates.
pub(super) fn normalize_permissions(mut permissions: Vec<Permission>) -> Vec<Permission> {
    permissions.sort_unstable();
    permissions.dedup();
    permissions
}

/// Checks that these keys are few enough for one operation.
pub(super) fn check_key_count<T>(keys: &[T]) -> Result<(), ManagementError> {
    if keys.len() > MAX_KEYS { Err(ManagementError::TooManyKeyIds) } else { Ok(()) }
}
