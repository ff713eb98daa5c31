//! Authorization of operations: the one place that decides what an actor may do.
//!
//! | access | operator | administrator of the chosen organization | other signed-in user |
//! |---|---|---|---|
//! | [`Access::Operator`] | yes | no | no |
//! | [`Access::Org`] | yes | the chosen one | the chosen one |
//! | [`Access::OrgAdmin`] | yes | the chosen one | no |
//! | [`Access::NewKey`] | yes | for all its users | for themselves |
//! | [`Access::Key`], [`Access::Keys`] | yes | all of the organization | their own |
//! | [`Access::Session`] | yes | all of the organization | their own |
//!
//! - A visitor, who is in the middle of signing in, may do nothing of this.
//! - A key or session that an actor may not see is reported as absent, so that ids of others cannot be probed.

use futures_util::future::try_join_all;

use super::actor::AuditActor;
use super::{Actor, Management, ManagementError, SignedInUser, operands};
use domain::clock::Micros;
use domain::identity::SessionId;
use domain::key::KeyId;
use state::{self, Membership};

/// Access that an operation needs. Organizations and users are references as operations take them:
/// ids, names or addresses.
#[derive(Clone, Copy, Debug)]
pub(super) enum Access<'a> {
    /// To everything, across organizations.
    Operator,
    /// To what every member of an organization may see.
    Org(&'a str),
    /// To what administrators of an organization may see.
    OrgAdmin(&'a str),
    /// To create a key for a user of an organization.
    NewKey { org: &'a str, user: &'a str },
    /// To one key.
    Key(KeyId),
    /// To some keys of an organization.
    Keys { org: &'a str, keys: &'a [KeyId] },
    /// To one web session.
    Session(SessionId),
}

impl Management {
    /// Authorizes an actor, and returns who the audit record names for what follows.
    ///
    /// # Errors
    /// [`ManagementError::NotAllowed`]; for a key or session that the actor may not see, that there is none.
    pub(super) async fn authorize<'a>(
        &self,
        actor: &'a Actor,
        access: Access<'_>,
        now: Micros,
    ) -> Result<AuditActor<'a>, ManagementError> {
        match actor {
            Actor::Operator(_) => {}
            Actor::Visitor(_) => return Err(ManagementError::NotAllowed),
            Actor::User(user) => self.authorize_user(user, access, now).await?,
        }
        Ok(AuditActor { actor, now })
    }

    async fn authorize_user(
        &self,
        user: &SignedInUser,
        access: Access<'_>,
        now: Micros,
    ) -> Result<(), ManagementError> {
        let allowed = match access {
            Access::Operator => false,
            Access::Org(org) => user.has_chosen(org),
            Access::OrgAdmin(org) => user.has_chosen(org) && user.is_admin(),
            Access::NewKey { org, user: owner } => user.has_chosen(org) && (user.is_admin() || user.is_named(owner)),
            Access::Key(key) => return self.authorize_key(user, key).await,
            Access::Keys { org, keys } if user.has_chosen(org) => return self.authorize_keys(user, keys).await,
            Access::Keys { .. } => false,
            Access::Session(session) => return self.authorize_session(user, session, now).await,
        };
        if allowed { Ok(()) } else { Err(ManagementError::NotAllowed) }
    }

    /// Authorizes each of these keys. Too many are refused before any of them is looked up, to bound the work.
    async fn authorize_keys(&self, user: &SignedInUser, keys: &[KeyId]) -> Result<(), ManagementError> {
        operands::check_key_count(keys)?;
        try_join_all(keys.iter().map(|key| self.authorize_key(user, *key))).await.map(drop)
    }

    /// A session quota key is never managed, so it is reported as absent like a key of another user.
    async fn authorize_key(&self, user: &SignedInUser, id: KeyId) -> Result<(), ManagementError> {
        let key = self.state.key(id).await?;
        let is_visible = |key: &state::Key| {
            key.org == user.org.id && (key.user == user.user.id || user.is_admin()) && !key.session_quota_key
        };
        if key.is_some_and(|key| is_visible(&key)) { Ok(()) } else { Err(ManagementError::NoKey(id)) }
    }

    async fn authorize_session(&self, user: &SignedInUser, id: SessionId, now: Micros) -> Result<(), ManagementError> {
        let session = self.state.session_by_id(id, now).await?;
        let is_visible = |membership: &Membership| {
            membership.user == user.user.id || (user.is_admin() && membership.org == user.org.id)
        };
        let visible = session.is_some_and(|session| session.memberships.iter().any(is_visible));
        if visible { Ok(()) } else { Err(ManagementError::NoSession(id.to_string())) }
    }
}
