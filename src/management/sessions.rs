//! Web sessions: how they begin and how they end.
//!
//! - Each sign-in makes a new session with a new token, and ends the one that the browser had: no value that somebody
//!   planted before is worth anything after (session fixation).
//! - Beginnings and ends are in the audit, with who, from where and by which provider.

use std::time::Duration;

use super::actor::AuditActor;
use super::recording::Target;
use super::{Actor, ClientInfo, Management, ManagementError, Reply, SignedInUser};
use crate::clock::Micros;
use crate::identity::{OrgId, SessionId, UserId};
use crate::session::{Token, TokenDigest};
use crate::state::{self, Change, Membership, Session};

/// Characters of a user agent that a session keeps.
const USER_AGENT: usize = 300;

/// How web sessions are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionSettings {
    /// The pages' address, without a slash at the end: origin and path.
    pub url: String,
    /// How long a session may go unused.
    pub idle: Duration,
    /// How long it lasts, whatever happens.
    pub lifetime: Duration,
    /// Whether sign-in links are given out, and taken.
    pub links: bool,
}

/// What a new session is made of.
pub(super) struct NewSession {
    pub(super) memberships: Vec<Membership>,
    pub(super) email: String,
    pub(super) provider: Option<String>,
    pub(super) id_token: Option<String>,
    /// The session that the browser had.
    pub(super) previous: Option<TokenDigest>,
}

impl Management {
    /// How web sessions are.
    ///
    /// # Errors
    /// [`ManagementError::NoSessions`] when there are none.
    pub(super) fn sessions(&self) -> Result<&SessionSettings, ManagementError> {
        self.sessions.as_ref().ok_or(ManagementError::NoSessions)
    }

    /// The organizations that a person may act in, with their names.
    ///
    /// # Errors
    /// [`ManagementError::StateAway`].
    pub async fn accessible_orgs(&self, person: &SignedInUser) -> Result<Vec<(OrgId, String)>, ManagementError> {
        if let [_] = person.session.memberships.as_slice() {
            return Ok(vec![(person.org.id, person.org.name.clone())]);
        }
        let mut orgs = Vec::new();
        for Membership { org, user } in &person.session.memberships {
            // Whoever was removed from one does not act there any more.
            let found = self.state.member(*org, *user).await?.filter(|(_, user)| user.removed.is_none());
            orgs.extend(found.map(|(org, _)| (org.id, org.name)));
        }
        Ok(orgs)
    }

    /// Makes the session, and ends the one before.
    pub(super) async fn begin(
        &self,
        new_session: NewSession,
        client: ClientInfo,
        now: Micros,
    ) -> Result<(Token, Session), ManagementError> {
        let NewSession { memberships, email, provider, id_token, previous } = new_session;
        let settings = self.sessions()?;
        let chosen = memberships.first().copied().ok_or(ManagementError::BadLink)?;
        let actor = Actor::Visitor(client.clone());
        let by = AuditActor { actor: &actor, now };
        for membership in &memberships {
            self.ensure_session_quota_key(*membership, now).await?;
        }
        let session = Session {
            id: SessionId::generate(),
            email,
            memberships,
            chosen: chosen.org,
            provider,
            id_token,
            created: now,
            expires: now.after(settings.lifetime),
            idle: settings.idle,
            seen: now,
            ip: client.ip,
            user_agent: client.user_agent.map(|agent| agent.chars().take(USER_AGENT).collect()),
        };
        let token = Token::generate()?;
        let way = format!("session.start/{}", session.provider.as_deref().unwrap_or("link"));
        let change = Change::CreateSession { session: Box::new(session.clone()), digest: token.digest() };
        self.change_at("session.start", &way, target(chosen.org, chosen.user), change, by).await?;
        if let Some(previous) = previous
            && let Some(session) = self.state.session(&previous, now).await?
        {
            self.end(&session, by).await?;
        }
        Ok((token, session))
    }

    /// Creates the user's session quota key when it is missing.
    async fn ensure_session_quota_key(&self, membership: Membership, now: Micros) -> Result<(), ManagementError> {
        let digest = state::session_quota_digest(membership.user);
        if self.state.key_of(&digest).await?.is_some() {
            return Ok(());
        }
        match self.state.change(self.new_session_quota_key(membership, now).await?).await {
            // Somebody else signs the same person in.
            Err(state::ChangeError::Taken("digest")) => Ok(()),
            changed => Ok(changed?),
        }
    }

    /// Has a person act in another of their organizations.
    ///
    /// # Errors
    /// [`ManagementError::NotAllowed`] when they do not belong to it, or not any more.
    pub async fn choose_org(&self, person: &SignedInUser, org: &str, now: Micros) -> Result<(), ManagementError> {
        let id = org.parse::<OrgId>().map_err(|_| ManagementError::NotAllowed)?;
        let member = person.session.memberships.iter().find(|membership| membership.org == id);
        let member = *member.ok_or(ManagementError::NotAllowed)?;
        let found = self.state.member(member.org, member.user).await?;
        if found.is_none_or(|(_, user)| user.removed.is_some()) {
            return Err(ManagementError::NotAllowed);
        }
        let actor = Actor::User(Box::new(person.clone()));
        let change = Change::ChooseOrg { session: person.session.id, org: id };
        self.change("session.choose_org", target(id, member.user), change, AuditActor { actor: &actor, now }).await
    }

    /// Ends a person's own session.
    ///
    /// # Errors
    /// As for all operations.
    pub async fn sign_out(&self, person: &SignedInUser, now: Micros) -> Result<(), ManagementError> {
        let actor = Actor::User(Box::new(person.clone()));
        self.end(&person.session, AuditActor { actor: &actor, now }).await
    }

    async fn end(&self, session: &Session, by: AuditActor<'_>) -> Result<(), ManagementError> {
        let user = session.user().ok_or_else(|| ManagementError::NoSession(session.id.to_string()))?;
        let org = by.actor.org().unwrap_or(session.chosen);
        let (which, change) = (format!("session.end/{}", session.id), Change::EndSession { session: session.id });
        self.change_at("session.end", &which, target(org, user), change, by).await
    }

    /// The sessions that an actor may see: a member their own, an admin those of the organization.
    pub(super) async fn list_sessions(&self, org: Option<&str>, by: AuditActor<'_>) -> Result<Reply, ManagementError> {
        let org = match org {
            Some(org) => Some(self.org(org).await?.id),
            None => None,
        };
        let only = by.actor.only();
        let is_shown = |session: &Session| {
            let member = |membership: &Membership| {
                org.is_none_or(|org| org == membership.org) && only.is_none_or(|only| only == membership.user)
            };
            session.memberships.iter().any(member)
        };
        let mut sessions = self.state.sessions(by.now).await?;
        sessions.retain(is_shown);
        if let (Actor::User(person), Some(org)) = (by.actor, org) {
            sessions
                .iter_mut()
                .filter(|session| session.id != person.session.id)
                .for_each(|session| seen_from(session, org));
        }
        Ok(Reply::Sessions { sessions: sessions.into_iter().map(Into::into).collect() })
    }

    pub(super) async fn end_session(&self, id: SessionId, by: AuditActor<'_>) -> Result<Reply, ManagementError> {
        let found = self.state.session_by_id(id, by.now).await?;
        let mut session = found.ok_or_else(|| ManagementError::NoSession(id.to_string()))?;
        self.end(&session, by).await?;
        if let Actor::User(person) = by.actor
            && session.id != person.session.id
        {
            seen_from(&mut session, person.org.id);
        }
        Ok(Reply::Sessions { sessions: vec![session.into()] })
    }

    /// Ends all sessions of a user.
    pub(super) async fn end_sessions(
        &self,
        org: &str,
        user: &str,
        by: AuditActor<'_>,
    ) -> Result<Reply, ManagementError> {
        let user = self.user(self.org(org).await?.id, user).await?;
        let member = |membership: &Membership| membership.user == user.id;
        let mut ended = Vec::new();
        for session in self.state.sessions(by.now).await? {
            if session.memberships.iter().any(member) {
                self.end(&session, by).await?;
                ended.push(session.into());
            }
        }
        Ok(Reply::Sessions { sessions: ended })
    }

    /// A session of somebody who belongs to another organization, or of another person for those who are no admins, is
    /// none.
    pub(super) async fn own_session(&self, person: &SignedInUser, id: SessionId) -> Result<(), ManagementError> {
        let found = self.state.session_by_id(id, crate::clock::now()).await?;
        let is_own = |session: &Session| {
            let member = |membership: &Membership| {
                membership.user == person.user.id || (person.is_admin() && membership.org == person.org.id)
            };
            session.memberships.iter().any(member)
        };
        let found = found.is_some_and(|session| is_own(&session));
        if found { Ok(()) } else { Err(ManagementError::NoSession(id.to_string())) }
    }
}

/// Leaves of a session what is an organization's business: not where else the person belongs.
fn seen_from(session: &mut Session, org: OrgId) {
    session.memberships.retain(|membership| membership.org == org);
    session.chosen = org;
}

pub(super) fn target(org: OrgId, user: UserId) -> Target {
    Target { org, user: Some(user), key: None }
}
