//! Web sessions: how they begin, by a link or by a provider's word, and how they end.
//!
//! - Each sign-in makes a new session with a new token, and ends the one that the browser had: no value that somebody
//!   planted before is worth anything after (session fixation).
//! - Beginnings and ends are in the audit, with who, from where and by which provider.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::actor::By;
use super::recording::Subject;
use super::{Actor, Link, Management, ManagementError, Origin, Person, Reply, checks};
use crate::clock::Micros;
use crate::identity::{OrgId, Permission, SessionId, UserId};
use crate::secret::Secret;
use crate::session::{Token, TokenDigest};
use crate::state::{self, Change, Membership, Session};

/// For how long a sign-in link is good.
const LINK: Duration = Duration::from_secs(5 * 60);
/// Characters of a user agent that a session keeps.
const USER_AGENT: usize = 300;
/// Bytes of an ID token that a session keeps; without it, the provider asks whether to sign out.
const ID_TOKEN: usize = 8 << 10;

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

/// What a link offers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkOffer {
    /// Whom it signs in.
    pub email: String,
    /// The name of the organization.
    pub org: String,
    /// Until when.
    pub expires: Micros,
}

/// What a link is good for, as its ticket has it.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct Good {
    membership: Membership,
    expires: Micros,
}

/// What a provider says of a person, as the configuration reads it.
#[derive(Clone, Debug)]
pub struct SignIn {
    /// The provider's name.
    pub provider: String,
    /// The person's address; verified, or believed.
    pub email: String,
    /// Where they belong to.
    pub belongs: Belongs,
    /// What the provider wants to see again when they sign out.
    pub id_token: Option<Secret>,
    /// The session that the browser had.
    pub previous: Option<TokenDigest>,
}

/// Where a person belongs to, and what they may do there.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Belongs {
    /// Organizations, by name or id, as the provider says; none: those whose directory has the person's address. A person
    /// who is not in the directory of such an organization yet is entered.
    pub orgs: Option<Vec<String>>,
    /// The only organizations, by name or id, that this provider may speak for; none: all.
    pub only: Option<Vec<String>>,
    /// What they may do in each of them, as the provider says; none: what the directory says.
    pub permissions: Option<Vec<Permission>>,
}

impl Management {
    /// How web sessions are.
    ///
    /// # Errors
    /// [`ManagementError::NoSessions`] when there are none.
    pub(super) fn sessions(&self) -> Result<&SessionSettings, ManagementError> {
        self.sessions.as_ref().ok_or(ManagementError::NoSessions)
    }

    fn links(&self) -> Result<&SessionSettings, ManagementError> {
        let settings = self.sessions()?;
        if settings.links { Ok(settings) } else { Err(ManagementError::NoLinks) }
    }

    /// Makes a link that signs a user in, once.
    pub(super) async fn link_session(&self, org: &str, user: &str, by: By<'_>) -> Result<Reply, ManagementError> {
        let settings = self.links()?;
        let org = self.org(org).await?;
        let user = self.user(org.id, user).await?;
        let (token, expires) = (Token::generate()?, by.now.after(LINK));
        let good = Good { membership: Membership { org: org.id, user: user.id }, expires };
        let change = good.ticket(token.digest());
        self.change("session.link", subject(org.id, user.id), change, by).await?;
        let url = Secret::new(format!("{}/link/{}", settings.url, token.expose()));
        Ok(Reply::Link { link: Link::new(url, &user.email, expires) })
    }

    /// Signs in by a link: a new session, and what its browser is to hold.
    ///
    /// # Errors
    /// [`ManagementError::BadLink`] when it was used, has expired, or never was one; others as for all operations.
    pub async fn sign_in_by_link(
        &self,
        link: &TokenDigest,
        previous: Option<TokenDigest>,
        origin: Origin,
        now: Micros,
    ) -> Result<(Token, Session), ManagementError> {
        self.links()?;
        let Good { membership, .. } = self.take_link(link, now).await?;
        let (_, user) = self.linked(membership).await?;
        self.begin(vec![membership], user.email, None, None, previous, origin, now).await
    }

    /// What a link offers, for a page that asks before it is taken.
    ///
    /// It is taken, and put back as it was: somebody who takes it at the same moment may be told that it is gone.
    ///
    /// # Errors
    /// As [`Management::sign_in_by_link`].
    pub async fn look_at_link(&self, link: &TokenDigest, now: Micros) -> Result<LinkOffer, ManagementError> {
        self.links()?;
        let good = self.take_link(link, now).await?;
        self.state.change(good.ticket(*link)).await?;
        let (org, user) = self.linked(good.membership).await?;
        Ok(LinkOffer { email: user.email, org: org.name, expires: good.expires })
    }

    async fn take_link(&self, link: &TokenDigest, now: Micros) -> Result<Good, ManagementError> {
        let content = self.state.take_ticket(link, now).await?.ok_or(ManagementError::BadLink)?;
        serde_json::from_slice(&content).map_err(|_| ManagementError::BadLink)
    }

    /// Whom a link signs in, unless they were removed meanwhile.
    async fn linked(&self, membership: Membership) -> Result<(state::Org, state::User), ManagementError> {
        let member = self.state.member(membership.org, membership.user).await?;
        member.filter(|(_, user)| user.removed.is_none()).ok_or(ManagementError::BadLink)
    }

    /// The organizations that a person may act in, with their names.
    ///
    /// # Errors
    /// [`ManagementError::StateAway`].
    pub async fn orgs_of(&self, person: &Person) -> Result<Vec<(OrgId, String)>, ManagementError> {
        if let [_] = person.session.memberships.as_slice() {
            return Ok(vec![(person.org.id, person.org.name.clone())]);
        }
        let is_theirs = |org: &state::Org| person.session.memberships.iter().any(|member| member.org == org.id);
        let orgs = self.state.orgs().await?.into_iter().filter(is_theirs);
        Ok(orgs.map(|org| (org.id, org.name)).collect())
    }

    /// Signs in by a provider's word: a new session, and what its browser is to hold.
    ///
    /// # Errors
    /// [`ManagementError::NoMembership`] when the person belongs nowhere; others as for all operations.
    pub async fn sign_in(
        &self,
        sign_in: SignIn,
        origin: Origin,
        now: Micros,
    ) -> Result<(Token, Session), ManagementError> {
        let SignIn { provider, email, belongs, id_token, previous } = sign_in;
        let email = checks::email(&email)?;
        let visitor = Actor::Visitor(origin.clone());
        let memberships = self.memberships(&email, &belongs, By { actor: &visitor, now }).await?;
        let id_token = id_token.map(|token| token.expose().to_owned()).filter(|token| token.len() <= ID_TOKEN);
        self.begin(memberships, email, Some(provider), id_token, previous, origin, now).await
    }

    /// Who the person is in each organization that they belong to; those that the provider entrusts to us are entered.
    async fn memberships(
        &self,
        email: &str,
        belongs: &Belongs,
        by: By<'_>,
    ) -> Result<Vec<Membership>, ManagementError> {
        let named = |names: &[String], org: &state::Org| names.iter().any(|name| is_named(name, org));
        let mut memberships = Vec::new();
        for org in self.state.orgs().await? {
            let may = belongs.only.as_deref().is_none_or(|only| named(only, &org));
            let told = belongs.orgs.as_deref().map(|orgs| named(orgs, &org));
            if !may || told == Some(false) {
                continue;
            }
            let found = self.state.user_by_email(org.id, email).await?;
            let user = match (found, told) {
                (Some(user), _) => self.as_told(user, belongs, by).await?,
                (None, Some(_)) => {
                    let permissions = belongs.permissions.clone().unwrap_or_default();
                    self.enter_user(org.id, email, permissions, by).await?
                }
                (None, None) => continue,
            };
            memberships.push(Membership { org: org.id, user });
        }
        if memberships.is_empty() { Err(ManagementError::NoMembership(email.to_owned())) } else { Ok(memberships) }
    }

    /// A user, permitted what the provider says.
    async fn as_told(&self, user: state::User, belongs: &Belongs, by: By<'_>) -> Result<UserId, ManagementError> {
        if let Some(told) = &belongs.permissions {
            let permissions = checks::permissions(told.clone());
            if permissions != user.permissions {
                let change = Change::PermitUser { org: user.org, user: user.id, permissions };
                self.change("user.permit", subject(user.org, user.id), change, by).await?;
            }
        }
        Ok(user.id)
    }

    /// Makes the session, and ends the one before.
    #[allow(clippy::too_many_arguments, reason = "what a session is made of, by two ways in")]
    async fn begin(
        &self,
        memberships: Vec<Membership>,
        email: String,
        provider: Option<String>,
        id_token: Option<String>,
        previous: Option<TokenDigest>,
        origin: Origin,
        now: Micros,
    ) -> Result<(Token, Session), ManagementError> {
        let settings = self.sessions()?;
        let chosen = memberships.first().copied().ok_or(ManagementError::BadLink)?;
        let actor = Actor::Visitor(origin.clone());
        let by = By { actor: &actor, now };
        for membership in &memberships {
            self.seat(*membership, now).await?;
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
            ip: origin.ip,
            user_agent: origin.user_agent.map(|agent| agent.chars().take(USER_AGENT).collect()),
        };
        let token = Token::generate()?;
        let change = Change::CreateSession { session: Box::new(session.clone()), digest: token.digest() };
        self.change("session.start", subject(chosen.org, chosen.user), change, by).await?;
        if let Some(previous) = previous
            && let Some(session) = self.state.session(&previous, now).await?
        {
            self.end(&session, by).await?;
        }
        Ok((token, session))
    }

    /// Sees to it that a user has a seat: what their sessions' requests are counted by.
    async fn seat(&self, membership: Membership, now: Micros) -> Result<(), ManagementError> {
        let digest = state::seat(membership.user);
        if self.state.key_of(&digest).await?.is_some() {
            return Ok(());
        }
        match self.state.change(self.new_seat(membership, now).await?).await {
            // Somebody else signs the same person in.
            Err(state::ChangeError::Taken("digest")) => Ok(()),
            changed => Ok(changed?),
        }
    }

    /// Has a person act in another of their organizations.
    ///
    /// # Errors
    /// [`ManagementError::NotAllowed`] when they do not belong to it, or not any more.
    pub async fn choose_org(&self, person: &Person, org: &str, now: Micros) -> Result<(), ManagementError> {
        let id = org.parse::<OrgId>().map_err(|_| ManagementError::NotAllowed)?;
        let member = person.session.memberships.iter().find(|membership| membership.org == id);
        let member = *member.ok_or(ManagementError::NotAllowed)?;
        let found = self.state.member(member.org, member.user).await?;
        if found.is_none_or(|(_, user)| user.removed.is_some()) {
            return Err(ManagementError::NotAllowed);
        }
        let actor = Actor::Person(Box::new(person.clone()));
        let change = Change::ChooseOrg { session: person.session.id, org: id };
        self.change("session.choose_org", subject(id, member.user), change, By { actor: &actor, now }).await
    }

    /// Ends a person's own session.
    ///
    /// # Errors
    /// As for all operations.
    pub async fn sign_out(&self, person: &Person, now: Micros) -> Result<(), ManagementError> {
        let actor = Actor::Person(Box::new(person.clone()));
        self.end(&person.session, By { actor: &actor, now }).await
    }

    async fn end(&self, session: &Session, by: By<'_>) -> Result<(), ManagementError> {
        let user = session.user().ok_or_else(|| ManagementError::NoSession(session.id.to_string()))?;
        let change = Change::EndSession { session: session.id };
        self.change("session.end", subject(session.chosen, user), change, by).await
    }

    /// The sessions that an actor may see: a member their own, an admin those of the organization.
    pub(super) async fn list_sessions(&self, org: Option<&str>, by: By<'_>) -> Result<Reply, ManagementError> {
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
        if let (Actor::Person(person), Some(org)) = (by.actor, org) {
            sessions
                .iter_mut()
                .filter(|session| session.id != person.session.id)
                .for_each(|session| seen_from(session, org));
        }
        Ok(Reply::Sessions { sessions: sessions.into_iter().map(Into::into).collect() })
    }

    pub(super) async fn end_session(&self, id: SessionId, by: By<'_>) -> Result<Reply, ManagementError> {
        let found = self.state.sessions(by.now).await?.into_iter().find(|session| session.id == id);
        let session = found.ok_or_else(|| ManagementError::NoSession(id.to_string()))?;
        self.end(&session, by).await?;
        Ok(Reply::Sessions { sessions: vec![session.into()] })
    }

    /// Ends all sessions of a user.
    pub(super) async fn end_sessions(&self, org: &str, user: &str, by: By<'_>) -> Result<Reply, ManagementError> {
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
    pub(super) async fn own_session(&self, person: &Person, id: SessionId) -> Result<(), ManagementError> {
        let now = crate::clock::now();
        let found = self.state.sessions(now).await?.into_iter().find(|session| session.id == id);
        let is_own = |session: &Session| {
            let member = |membership: &Membership| {
                membership.user == person.user.id || (person.is_admin() && membership.org == person.org.id)
            };
            session.memberships.iter().any(member)
        };
        let found = found.is_some_and(|session| is_own(&session));
        if found { Ok(()) } else { Err(ManagementError::NoSession(id.to_string())) }
    }

    /// Keeps what a sign-in under way needs when the browser comes back, once.
    ///
    /// # Errors
    /// [`ManagementError::State`].
    pub async fn put_pending(
        &self,
        digest: TokenDigest,
        content: Vec<u8>,
        expires: Micros,
    ) -> Result<(), ManagementError> {
        Ok(self.state.change(Change::PutTicket { digest, content, expires }).await?)
    }

    /// What was kept, for the first who asks.
    ///
    /// # Errors
    /// [`ManagementError::State`].
    pub async fn take_pending(&self, digest: &TokenDigest, now: Micros) -> Result<Option<Vec<u8>>, ManagementError> {
        Ok(self.state.take_ticket(digest, now).await?)
    }
}

/// Leaves of a session what is an organization's business: not where else the person belongs.
fn seen_from(session: &mut Session, org: OrgId) {
    session.memberships.retain(|membership| membership.org == org);
    session.chosen = org;
}

impl Good {
    fn ticket(self, digest: TokenDigest) -> Change {
        let content = serde_json::to_vec(&self).expect("ids and times are JSON");
        Change::PutTicket { digest, content, expires: self.expires }
    }
}

fn is_named(name: &str, org: &state::Org) -> bool {
    name.parse::<OrgId>().map_or(name == org.name, |id| id == org.id)
}

fn subject(org: OrgId, user: UserId) -> Subject {
    Subject { org, user: Some(user), key: None }
}
