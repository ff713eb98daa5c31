//! Users.

use super::actor::AuditActor;
use super::recording::Target;
use super::{Management, ManagementError, Reply, checks};
use crate::identity::{OrgId, Permission, UserId};
use crate::state::{Change, User};

impl Management {
    pub(super) async fn create_user(
        &self,
        org: &str,
        email: &str,
        permissions: Vec<Permission>,
        by: AuditActor<'_>,
    ) -> Result<Reply, ManagementError> {
        let email = checks::email(email)?;
        let org = self.org(org).await?.id;
        let permissions = checks::permissions(permissions);
        let user = User { id: UserId::generate(), org, email, permissions, created: by.now, removed: None };
        self.change("user.create", target(&user), Change::CreateUser(user.clone()), by).await?;
        Ok(Reply::User { user: user.into() })
    }

    /// Enters a user that a provider speaks for.
    pub(super) async fn enter_user(
        &self,
        org: OrgId,
        email: &str,
        permissions: Vec<Permission>,
        by: AuditActor<'_>,
    ) -> Result<UserId, ManagementError> {
        let (id, email, permissions) = (UserId::generate(), email.to_owned(), checks::permissions(permissions));
        let user = User { id, org, email, permissions, created: by.now, removed: None };
        self.change("user.create", target(&user), Change::CreateUser(user), by).await?;
        Ok(id)
    }

    pub(super) async fn list_users(&self, org: &str) -> Result<Reply, ManagementError> {
        let users = self.state.users(self.org(org).await?.id).await?;
        Ok(Reply::Users { users: users.into_iter().map(Into::into).collect() })
    }

    pub(super) async fn permit_user(
        &self,
        org: &str,
        user: &str,
        permissions: Vec<Permission>,
        by: AuditActor<'_>,
    ) -> Result<Reply, ManagementError> {
        let user = self.user(self.org(org).await?.id, user).await?;
        let permissions = checks::permissions(permissions);
        let change = Change::PermitUser { org: user.org, user: user.id, permissions: permissions.clone() };
        self.change("user.permit", target(&user), change, by).await?;
        Ok(Reply::User { user: User { permissions, ..user }.into() })
    }

    pub(super) async fn remove_user(
        &self,
        org: &str,
        user: &str,
        by: AuditActor<'_>,
    ) -> Result<Reply, ManagementError> {
        let user = self.user(self.org(org).await?.id, user).await?;
        let change = Change::RemoveUser { org: user.org, user: user.id, at: by.now };
        self.change("user.remove", target(&user), change, by).await?;
        Ok(Reply::User { user: User { removed: Some(by.now), ..user }.into() })
    }
}

fn target(user: &User) -> Target {
    Target { org: user.org, user: Some(user.id), key: None }
}
