//! Web sessions: start, choose an organization, list; `session_end` ends them.
//!
//! - Each sign-in creates a new session with a new token, and ends the one that the browser presented: a token that an
//!   attacker planted in the browser before is worth nothing afterwards (session fixation).
//! - Starts and ends are in the audit journal: who, from which address, by which provider.

use std::time::Duration;

use super::actor::AuditActor;
use super::audited_change::apply_change;
use super::authorization::{Access, authorize};
use super::cursor::cursor_sealer;
use super::keys::new_session_quota_key;
use super::operands::find_org;
use super::session::{Session, show, target};
use super::session_bound::add_session;
use super::session_end::apply_end;
use super::{Actor, ClientInfo, Management, ManagementError, SignedInUser};
use domain::clock::Micros;
use domain::identity::{OrgId, PersonId, SessionId};
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
    /// `true`: administrators add, remove and permit the people of their organizations.
    pub admins_manage_people: bool,
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

/// The settings of web sessions.
///
/// # Errors
/// [`ManagementError::NoSessions`] when the configuration has none.
pub(super) fn session_settings(management: &Management) -> Result<&SessionSettings, ManagementError> {
    management.sessions.as_ref().ok_or(ManagementError::NoSessions)
}

/// Lists the organizations that a signed-in user may choose, with their names.
///
/// # Errors
/// [`ManagementError::StateUnavailable`].
pub async fn accessible_orgs(
    management: &Management,
    user: &SignedInUser,
) -> Result<Vec<(OrgId, String)>, ManagementError> {
    // The usual case needs no lookup: the chosen organization is the only one, and was read for this request.
    if let [_] = user.session.memberships.as_slice() {
        return Ok(vec![(user.org.id, user.org.name.clone())]);
    }
    let mut orgs = Vec::new();
    for Membership { org, user } in &user.session.memberships {
        // The session lists memberships as they were at sign-in; the user may have been removed from one since.
        let member = management.state.member(*org, *user).await?.filter(|(_, user)| user.is_active());
        orgs.extend(member.map(|(org, _)| (org.id, org.name)));
    }
    Ok(orgs)
}

/// Creates a session, then ends the one that the browser presented.
pub(super) async fn start_session(
    management: &Management,
    new_session: NewSession,
    client: ClientInfo,
    now: Micros,
) -> Result<(Token, state::Session), ManagementError> {
    let settings = session_settings(management)?;
    let previous = new_session.previous;
    let chosen = new_session.memberships.first().copied().ok_or(ManagementError::InvalidLink)?;
    let visitor = Actor::Visitor(client.clone());
    let by = AuditActor { actor: &visitor, now };
    // Before the session, so that its first request finds the session quota key.
    for membership in &new_session.memberships {
        ensure_session_quota_key(management, *membership, now).await?;
    }
    let session = session_record(new_session, chosen.org, client, settings, now);
    let token = Token::generate()?;
    add_session(management, &session, token.digest(), chosen, by).await?;
    if let Some(previous) = previous
        && let Some(session) = management.state.session(&previous, now).await?
    {
        apply_end(management, &session, by).await?;
    }
    Ok((token, session))
}

/// Creates a user's session quota key, unless it exists.
async fn ensure_session_quota_key(
    management: &Management,
    membership: Membership,
    now: Micros,
) -> Result<(), ManagementError> {
    let digest = state::session_quota_digest(membership.user);
    if management.state.key_of(&digest).await?.is_some() {
        return Ok(());
    }
    match management.state.change(new_session_quota_key(management, membership, now).await?).await {
        // Another sign-in of the same user, perhaps at another gateway, created it meanwhile.
        Err(state::ChangeError::Taken("digest")) => Ok(()),
        changed => Ok(changed?),
    }
}

/// Chooses another of a user's organizations for their session.
///
/// # Errors
/// [`ManagementError::NotAllowed`] when the user is not, or no longer, a member of it.
pub async fn choose_org(
    management: &Management,
    user: &SignedInUser,
    org: &str,
    now: Micros,
) -> Result<(), ManagementError> {
    let id = org.parse::<OrgId>().map_err(|_| ManagementError::NotAllowed)?;
    let membership = user.session.memberships.iter().find(|membership| membership.org == id);
    let membership = *membership.ok_or(ManagementError::NotAllowed)?;
    // The session lists memberships as they were at sign-in; the user may have been removed since.
    let member = management.state.member(membership.org, membership.user).await?;
    if member.is_none_or(|(_, user)| !user.is_active()) {
        return Err(ManagementError::NotAllowed);
    }
    let actor = Actor::User(Box::new(user.clone()));
    let change = Change::ChooseOrg { session: user.session.id, org: id };
    apply_change(
        management,
        "session.choose_org",
        target(id, membership.user),
        change,
        AuditActor { actor: &actor, now },
    )
    .await
}

/// Lists web sessions, a page at a time: all of them (for the operator), or those of members of one organization.
/// Users who do not administer it see their own.
///
/// # Errors
/// [`ManagementError::NoOrg`], [`ManagementError::Cursor`].
pub async fn list_sessions(
    management: &Management,
    actor: &Actor,
    org: Option<&str>,
    newest_first: bool,
    page: &PageQuery,
    now: Micros,
) -> Result<Page<Session>, ManagementError> {
    authorize(management, actor, org.map_or(Access::Operator, |org| Access::Org(org, TokenScope::UsersRead)), now)
        .await?;
    let org = match org {
        Some(org) => Some(find_org(management, org).await?.id),
        None => None,
    };
    let list = SessionList { org, owner: actor.visible_owner(), newest_first };
    let sealer = cursor_sealer(management, &("sessions", list.org, list.owner, newest_first)).await?;
    let after = sealer.open(page.cursor.as_deref())?;
    let found = management.state.page_of_sessions(list, after, page.limit.get(), now).await?;
    sealer.seal(found.map(|session| show(session, actor)))
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
