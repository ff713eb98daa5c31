//! Who has something done, and what they may have done.
//!
//! - The operator, who can open the admin socket, may do everything.
//! - A person may see and manage what is their own in the organization that they act in; who has the permission
//!   [`ADMIN`] there, all of it. What they may not see is answered as if it were not there.
//! - What a person may is read from the state for each of their requests, never remembered.

use std::net::IpAddr;

use futures_util::future::try_join_all;

use super::{Management, ManagementError, Operation, uses};
use crate::clock::Micros;
use crate::identity::{OrgId, UserId};
use crate::key::KeyId;
use crate::session::TokenDigest;
use crate::state::{Org, Session, User};

/// The permission of those who manage an organization: all its keys, not only their own.
pub const ADMIN: &str = "org:admin";

/// Who has something done.
#[derive(Clone, Debug)]
pub enum Actor {
    /// Whoever may open the admin socket, or the state's files.
    Operator,
    /// Somebody who signs in, and is nobody yet.
    Visitor(ClientInfo),
    /// A person with a session.
    User(Box<SignedInUser>),
}

/// Where a person's request came from.
#[derive(Clone, Debug, Default)]
pub struct ClientInfo {
    /// The client's address, by the trusted-proxy rule.
    pub ip: Option<IpAddr>,
    /// What it says that it is.
    pub user_agent: Option<String>,
}

/// A person with a session, as they are at this moment.
#[derive(Clone, Debug)]
pub struct SignedInUser {
    /// Their session.
    pub session: Session,
    /// Who they are in the chosen organization.
    pub user: User,
    /// The chosen organization.
    pub org: Org,
    /// Where their request came from.
    pub client: ClientInfo,
}

/// Who has something done, and when.
#[derive(Clone, Copy, Debug)]
pub(super) struct AuditActor<'a> {
    pub(super) actor: &'a Actor,
    pub(super) now: Micros,
}

impl Actor {
    /// Where the request came from; none for the operator.
    pub(super) fn client(&self) -> Option<&ClientInfo> {
        match self {
            Self::Operator => None,
            Self::Visitor(client) => Some(client),
            Self::User(person) => Some(&person.client),
        }
    }

    /// The organization that a person acts in.
    pub(super) fn org(&self) -> Option<OrgId> {
        match self {
            Self::User(person) => Some(person.org.id),
            Self::Operator | Self::Visitor(_) => None,
        }
    }

    /// Who it is in an organization, when it is a person who acts there.
    pub(super) fn user_in(&self, org: OrgId) -> Option<UserId> {
        match self {
            Self::User(person) => (person.org.id == org).then_some(person.user.id),
            Self::Operator | Self::Visitor(_) => None,
        }
    }

    /// Whose things alone may be seen; none: everybody's.
    pub(super) fn only(&self) -> Option<UserId> {
        match self {
            Self::User(person) if !person.is_admin() => Some(person.user.id),
            Self::User(_) | Self::Operator | Self::Visitor(_) => None,
        }
    }
}

impl SignedInUser {
    /// Whether they manage the whole organization.
    pub fn is_admin(&self) -> bool {
        self.user.permissions.iter().any(|permission| permission.as_str() == ADMIN)
    }

    fn is_here(&self, org: &str) -> bool {
        org.parse::<OrgId>().map_or(org == self.org.name, |id| id == self.org.id)
    }

    fn is_me(&self, user: &str) -> bool {
        user.parse::<UserId>().map_or_else(|_| user.to_lowercase() == self.user.email, |id| id == self.user.id)
    }
}

impl Management {
    /// The person whose session this is; none when it has ended, or the person was removed from the chosen organization.
    ///
    /// # Errors
    /// [`ManagementError::StateAway`].
    pub async fn authenticate_session(
        &self,
        digest: &TokenDigest,
        client: ClientInfo,
        now: Micros,
    ) -> Result<Option<SignedInUser>, ManagementError> {
        let Some(session) = self.state.session(digest, now).await? else { return Ok(None) };
        let Some(id) = session.user() else { return Ok(None) };
        let member = self.state.member(session.chosen, id).await?.filter(|(_, user)| user.removed.is_none());
        Ok(member.map(|(org, user)| SignedInUser { session, user, org, client }))
    }

    /// Whether this actor may have this done.
    pub(super) async fn allow(&self, actor: &Actor, operation: &Operation) -> Result<(), ManagementError> {
        let person = match actor {
            Actor::Operator => return Ok(()),
            Actor::Visitor(_) => return Err(ManagementError::NotAllowed),
            Actor::User(person) => person,
        };
        let allowed = match operation {
            Operation::ListOrgs {} => true,
            Operation::ShowOrg { org } | Operation::ListKeys { org } | Operation::ListSessions { org: Some(org) } => {
                person.is_here(org)
            }
            Operation::ListUsers { org } => person.is_here(org) && person.is_admin(),
            Operation::CreateKey { org, user, .. } => person.is_here(org) && (person.is_admin() || person.is_me(user)),
            Operation::Activity { org, keys } if person.is_here(org) => return self.own_keys(person, keys).await,
            Operation::ShowKey { key }
            | Operation::RevokeKey { key }
            | Operation::RotateKey { key, .. }
            | Operation::Explain { key }
            | Operation::ListUses { key, .. } => return self.own_key(person, *key).await,
            Operation::EndSession { session } => return self.own_session(person, *session).await,
            Operation::CreateOrg { .. }
            | Operation::SuspendOrg { .. }
            | Operation::ResumeOrg { .. }
            | Operation::LimitOrg { .. }
            | Operation::CreateUser { .. }
            | Operation::PermitUser { .. }
            | Operation::RemoveUser { .. }
            | Operation::LimitKey { .. }
            | Operation::ImportKey { .. }
            | Operation::LinkSession { .. }
            | Operation::ListSessions { org: None }
            | Operation::Activity { .. }
            | Operation::EndSessions { .. } => false,
        };
        if allowed { Ok(()) } else { Err(ManagementError::NotAllowed) }
    }

    /// Each of these keys; too many are refused before any of them is looked for.
    async fn own_keys(&self, person: &SignedInUser, keys: &[KeyId]) -> Result<(), ManagementError> {
        uses::check_number(keys)?;
        try_join_all(keys.iter().map(|key| self.own_key(person, *key))).await.map(drop)
    }

    /// A key of another organization, or of another user for those who are no admins, is none.
    async fn own_key(&self, person: &SignedInUser, id: KeyId) -> Result<(), ManagementError> {
        let key = self.state.key(id).await?;
        let is_own = |key: &crate::state::Key| {
            key.org == person.org.id && (key.user == person.user.id || person.is_admin()) && !key.session_quota_key
        };
        if key.is_some_and(|key| is_own(&key)) { Ok(()) } else { Err(ManagementError::NoKey(id)) }
    }
}
