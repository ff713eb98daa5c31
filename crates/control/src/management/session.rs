//! Web session as results show it.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use super::Actor;
use super::audited_change::Target;
use domain::clock::{self, Micros};
use domain::identity::SessionId;
use domain::identity::{OrgId, UserId};

/// Web session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs, reason = "as in state::Session")]
pub struct Session {
    pub id: SessionId,
    pub email: String,
    /// The chosen organization.
    pub org: OrgId,
    /// All organizations that the user may choose.
    pub orgs: Vec<OrgId>,
    pub provider: Option<String>,
    #[serde(with = "clock::rfc3339")]
    pub created: Micros,
    /// Time of the last use, to about a minute.
    #[serde(with = "clock::rfc3339")]
    pub seen: Micros,
    /// Time at which the session ends at the latest.
    #[serde(with = "clock::rfc3339")]
    pub expires: Micros,
    pub ip: Option<IpAddr>,
    pub user_agent: Option<String>,
}

impl From<state::Session> for Session {
    fn from(session: state::Session) -> Self {
        let orgs = session.memberships.iter().map(|membership| membership.org).collect();
        let state::Session { id, email, chosen, provider, created, seen, expires, ip, user_agent, .. } = session;
        Self { id, email, org: chosen, orgs, provider, created, seen, expires, ip, user_agent }
    }
}

/// A session as an actor may see it. Of sessions of others, a signed-in user sees only the organization that they
/// share: which other organizations a member belongs to is not this organization's business.
pub(super) fn show(mut session: state::Session, actor: &Actor) -> Session {
    if let Some(user) = actor.signed_in()
        && session.id != user.session.id
    {
        session.memberships.retain(|membership| membership.org == user.org.id);
        session.chosen = user.org.id;
    }
    session.into()
}

pub(super) fn target(org: OrgId, user: UserId) -> Target {
    Target { org: Some(org), user: Some(user), key: None }
}
