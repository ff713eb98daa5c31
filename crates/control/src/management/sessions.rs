//! Web sessions: start, choose an organization, list; `session_end` ends them.
//!
//! - Each sign-in creates a new session with a new token, and ends the one that the browser presented: a token that an
//!   attacker planted in the browser before is worth nothing afterwards (session fixation).
//! - Starts and ends are in the audit journal: who, from which address, by which provider.

use std::net::IpAddr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::actor::AuditActor;
use super::audited_change::Target;
use super::authorization::Access;
use super::{Actor, ClientInfo, Management, ManagementError, SignedInUser};
use domain::clock::{self, Micros};
use domain::identity::{OrgId, PersonId, SessionId, UserId};
use domain::management_token::TokenScope;
use domain::page::{Page, PageQuery};
use domain::session::{Token, TokenDigest};
use state::{self, Change, Membership, SessionList};

/// Characters of a user agent that a session keeps.
const MAX_USER_AGENT: usize = 300;

/// Settings of web sessions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionSettings {
    /// The pages' address, origin and path, without a slash at the end.
    pub url: String,
    /// Longest time without a request, after which a session ends.
    pub idle: Duration,
    /// Longest duration of a session.
    pub lifetime: Duration,
    /// `true`: sign-in links are issued and accepted.
    pub links: bool,
}

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

/// Result of a sign-in that succeeded, from which a session is created.
pub(super) struct NewSession {
    /// The user's memberships; the first one is chosen. At least one.
    pub(super) memberships: Vec<Membership>,
    pub(super) person: PersonId,
    pub(super) email: String,
    /// The identity provider; none for a sign-in link.
    pub(super) provider: Option<String>,
    pub(super) id_token: Option<String>,
    /// The session that the browser presented, which ends.
    pub(super) previous: Option<TokenDigest>,
}

impl Management {
    /// The settings of web sessions.
    ///
    /// # Errors
    /// [`ManagementError::NoSessions`] when the configuration has none.
    pub(super) fn session_settings(&self) -> Result<&SessionSettings, ManagementError> {
        self.sessions.as_ref().ok_or(ManagementError::NoSessions)
    }

    /// Lists the organizations that a signed-in user may choose, with their names.
    ///
    /// # Errors
    /// [`ManagementError::StateUnavailable`].
    pub async fn accessible_orgs(&self, user: &SignedInUser) -> Result<Vec<(OrgId, String)>, ManagementError> {
        // The usual case needs no lookup: the chosen organization is the only one, and was read for this request.
        if let [_] = user.session.memberships.as_slice() {
            return Ok(vec![(user.org.id, user.org.name.clone())]);
        }
        let mut orgs = Vec::new();
        for Membership { org, user } in &user.session.memberships {
            // The session lists memberships as they were at sign-in; the user may have been removed from one since.
            let member = self.state.member(*org, *user).await?.filter(|(_, user)| user.is_active());
            orgs.extend(member.map(|(org, _)| (org.id, org.name)));
        }
        Ok(orgs)
    }

    /// Creates a session, then ends the one that the browser presented.
    pub(super) async fn start_session(
        &self,
        new_session: NewSession,
        client: ClientInfo,
        now: Micros,
    ) -> Result<(Token, state::Session), ManagementError> {
        let settings = self.session_settings()?;
        let previous = new_session.previous;
        let chosen = new_session.memberships.first().copied().ok_or(ManagementError::InvalidLink)?;
        let visitor = Actor::Visitor(client.clone());
        let by = AuditActor { actor: &visitor, now };
        // Before the session, so that its first request finds the session quota key.
        for membership in &new_session.memberships {
            self.ensure_session_quota_key(*membership, now).await?;
        }
        let session = session_record(new_session, chosen.org, client, settings, now);
        let token = Token::generate()?;
        self.add_session(&session, token.digest(), chosen, by).await?;
        if let Some(previous) = previous
            && let Some(session) = self.state.session(&previous, now).await?
        {
            self.apply_end(&session, by).await?;
        }
        Ok((token, session))
    }

    /// Creates a user's session quota key, unless it exists.
    async fn ensure_session_quota_key(&self, membership: Membership, now: Micros) -> Result<(), ManagementError> {
        let digest = state::session_quota_digest(membership.user);
        if self.state.key_of(&digest).await?.is_some() {
            return Ok(());
        }
        match self.state.change(self.new_session_quota_key(membership, now).await?).await {
            // Another sign-in of the same user, perhaps at another gateway, created it meanwhile.
            Err(state::ChangeError::Taken("digest")) => Ok(()),
            changed => Ok(changed?),
        }
    }

    /// Chooses another of a user's organizations for their session.
    ///
    /// # Errors
    /// [`ManagementError::NotAllowed`] when the user is not, or no longer, a member of it.
    pub async fn choose_org(&self, user: &SignedInUser, org: &str, now: Micros) -> Result<(), ManagementError> {
        let id = org.parse::<OrgId>().map_err(|_| ManagementError::NotAllowed)?;
        let membership = user.session.memberships.iter().find(|membership| membership.org == id);
        let membership = *membership.ok_or(ManagementError::NotAllowed)?;
        // The session lists memberships as they were at sign-in; the user may have been removed since.
        let member = self.state.member(membership.org, membership.user).await?;
        if member.is_none_or(|(_, user)| !user.is_active()) {
            return Err(ManagementError::NotAllowed);
        }
        let actor = Actor::User(Box::new(user.clone()));
        let change = Change::ChooseOrg { session: user.session.id, org: id };
        self.apply_change("session.choose_org", target(id, membership.user), change, AuditActor { actor: &actor, now })
            .await
    }

    /// Lists web sessions, a page at a time: all of them (for the operator), or those of members of one organization.
    /// Users who do not administer it see their own.
    ///
    /// # Errors
    /// [`ManagementError::NoOrg`], [`ManagementError::Cursor`].
    pub async fn list_sessions(
        &self,
        actor: &Actor,
        org: Option<&str>,
        newest_first: bool,
        page: &PageQuery,
        now: Micros,
    ) -> Result<Page<Session>, ManagementError> {
        self.authorize(actor, org.map_or(Access::Operator, |org| Access::Org(org, TokenScope::UsersRead)), now).await?;
        let org = match org {
            Some(org) => Some(self.find_org(org).await?.id),
            None => None,
        };
        let list = SessionList { org, owner: actor.visible_owner(), newest_first };
        let sealer = self.cursor_sealer(&("sessions", list.org, list.owner, newest_first)).await?;
        let after = sealer.open(page.cursor.as_deref())?;
        let found = self.state.page_of_sessions(list, after, page.limit.get(), now).await?;
        sealer.seal(found.map(|session| show(session, actor)))
    }
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

fn session_record(
    new_session: NewSession,
    chosen: OrgId,
    client: ClientInfo,
    settings: &SessionSettings,
    now: Micros,
) -> state::Session {
    let NewSession { memberships, person, email, provider, id_token, previous: _ } = new_session;
    state::Session {
        id: SessionId::generate(),
        person,
        email,
        memberships,
        chosen,
        provider,
        id_token,
        created: now,
        expires: now.after(settings.lifetime),
        idle: settings.idle,
        seen: now,
        ip: client.ip,
        user_agent: client.user_agent.map(|agent| agent.chars().take(MAX_USER_AGENT).collect()),
    }
}

pub(super) fn target(org: OrgId, user: UserId) -> Target {
    Target { org: Some(org), user: Some(user), key: None }
}
