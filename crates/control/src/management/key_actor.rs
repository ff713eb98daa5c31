//! The actors who created, rotated and revoked a key, as the viewer of the key may know them.
//!
//! - Users are named by their email addresses. The name of the operator is for operators: an organization is not told
//!   which person runs the gateway.
//! - A key that was changed before actors were recorded names none.

use std::collections::{BTreeMap, BTreeSet};

use futures_util::future::try_join_all;
use serde::{Deserialize, Serialize};

use super::{Actor, Management, ManagementError};
use domain::identity::{OrgId, UserId};
use domain::key::KeyId;
use domain::management_token::TokenId;
use state::{ActorName, KeyActors};

/// Actor of a change of a key, or the creator of a management token.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum KeyActor {
    /// A user with a session.
    User(ChangeUser),
    /// A program.
    Program {
        /// The id of its management token.
        token: TokenId,
    },
    /// The operator.
    Operator {
        /// The Unix user; none where the viewer is not the operator.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        name: Option<String>,
    },
}

impl KeyActor {
    /// An actor as they know themselves.
    pub(super) fn of(actor: &Actor) -> Self {
        match actor {
            Actor::Operator(operator) => Self::Operator { name: Some(operator.user().to_string()) },
            Actor::User(user) => Self::User(ChangeUser { id: user.user.id, email: Some(user.user.email.clone()) }),
            Actor::Program(program) => Self::Program { token: program.token.id },
            Actor::Visitor(_) => unreachable!("a visitor is not authorized to change keys"),
        }
    }

    /// The actor with a recorded name, as the viewer may know them.
    pub(super) fn new(name: &ActorName, viewer: &Actor, emails: &BTreeMap<UserId, String>) -> Self {
        match (name.user(), name.token()) {
            (Some(id), _) => Self::User(ChangeUser { id, email: emails.get(&id).cloned() }),
            (None, Some(token)) => Self::Program { token },
            (None, None) => Self::Operator { name: viewer.knows_operators().then(|| name.to_string()) },
        }
    }

    /// The actor in one word or two: an email address, a token's id, a Unix user, or `the operator`.
    pub fn label(&self) -> String {
        match self {
            Self::User(user) => user.label(),
            Self::Program { token } => ActorName::of_token(*token).to_string(),
            Self::Operator { name } => name.clone().unwrap_or_else(|| "the operator".to_owned()),
        }
    }
}

/// The actors of keys of an organization, in their order, as the viewer may know them.
pub(super) async fn key_actors(
    management: &Management,
    viewer: &Actor,
    org: OrgId,
    keys: &[KeyId],
) -> Result<Vec<KeyActors<KeyActor>>, ManagementError> {
    let recorded = management.state.key_actors(keys).await?;
    let users = recorded.iter().flat_map(KeyActors::iter).filter_map(|(_, _, actor)| actor.user());
    let emails = emails_of(management, org, users.collect()).await?;
    Ok(recorded.iter().map(|actors| actors.map(|name| KeyActor::new(name, viewer, &emails))).collect())
}

/// The email addresses of users of an organization. Those whom it does not have any more are left out.
pub(super) async fn emails_of(
    management: &Management,
    org: OrgId,
    users: BTreeSet<UserId>,
) -> Result<BTreeMap<UserId, String>, ManagementError> {
    let found = try_join_all(users.into_iter().map(|id| management.state.member(org, id))).await?;
    Ok(found.into_iter().flatten().map(|(_, user)| (user.id, user.email)).collect())
}

/// User in a change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChangeUser {
    /// Id.
    pub id: UserId,
    /// Email address; `None` of a user whom the organization does not have any more.
    pub email: Option<String>,
}

impl ChangeUser {
    /// The email address; of a user whom the organization does not have any more, the id.
    pub fn label(&self) -> String {
        self.email.clone().unwrap_or_else(|| self.id.to_string())
    }
}
