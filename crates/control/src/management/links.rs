//! Sign-in links: for the first administrator, for the day on which the identity provider is down, and for people whom
//! an administrator invites.
//!
//! - The link of an administrator signs in a person who may do no more than the administrator at that time.
//! - A link is a ticket of the state: of all who try to take it, also at other gateways, exactly one succeeds.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::audited_change::apply_change;
use super::authorization::{Access, authorize};
use super::operands::{find_org, find_user};
use super::session::target;
use super::sessions::{NewSession, session_settings, start_session};
use super::{Actor, ClientInfo, Management, ManagementError, SessionSettings, operands};
use crate::secret_text;
use domain::clock::{self, Micros};
use domain::identity::{PersonId, UserId};
use domain::secret::Secret;
use domain::session::{Token, TokenDigest};
use state::{self, Change, Membership, Session, TicketSource};

/// Lifetime of a sign-in link: enough to send it and open it, too short to be found in a chat log.
const LINK_LIFETIME: Duration = Duration::from_secs(5 * 60);

/// Sign-in link. `Debug` does not show it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Link {
    /// The address that signs the user in, once.
    #[serde(with = "secret_text")]
    pub url: Secret,
    /// The user's email address.
    pub email: String,
    /// Time at which the link expires.
    #[serde(with = "clock::rfc3339")]
    pub expires: Micros,
}

/// Content of a sign-in link, for the page that asks for confirmation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkPreview {
    /// The email address of the user that it signs in.
    pub email: String,
    /// The name of the organization.
    pub org: String,
    /// Time at which it expires.
    pub expires: Micros,
}

/// Content of a link's ticket, as the state keeps it.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct LinkTicket {
    membership: Membership,
    expires: Micros,
    /// The administrator who made it; none: the operator.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    by: Option<UserId>,
}

/// Creates a link that signs a user in to the dashboard, once. For the operator, and where they manage people for
/// administrators of the organization.
///
/// # Errors
/// [`ManagementError::PeopleOfProvider`]; [`ManagementError::GrantExceeds`] for a user with more permissions;
/// [`ManagementError::NoSessions`], [`ManagementError::LinksDisabled`], [`ManagementError::NoOrg`],
/// [`ManagementError::NoUser`]; [`ManagementError::NotPerson`] for a service.
pub async fn create_link(
    management: &Management,
    actor: &Actor,
    org: &str,
    user: &str,
    now: Micros,
) -> Result<Link, ManagementError> {
    let by = authorize(management, actor, Access::People(org, None), now).await?;
    let settings = link_settings(management)?;
    let org = find_org(management, org).await?;
    operands::check_creation(actor, &org)?;
    let user = find_user(management, org.id, user).await?;
    if user.is_service() {
        return Err(ManagementError::NotPerson(user.email));
    }
    if let Some(admin) = actor.signed_in() {
        check_covered(&admin.user, &user)?;
    }
    let token = Token::generate()?;
    let expires = now.after(LINK_LIFETIME);
    let ticket =
        LinkTicket { membership: Membership { org: org.id, user: user.id }, expires, by: actor.bounded_user() };
    apply_change(management, "session.link", target(org.id, user.id), ticket.put(token.digest()), by).await?;
    let url = Secret::new(format!("{}/link/{}", settings.url, token.expose()));
    Ok(Link { url, email: user.email, expires })
}

/// Signs in with a link: starts a session and returns the token for the browser.
///
/// # Errors
/// [`ManagementError::InvalidLink`] when it was used, has expired, or never existed; others as for all operations.
pub async fn sign_in_with_link(
    management: &Management,
    link: &TokenDigest,
    previous: Option<TokenDigest>,
    client: ClientInfo,
    now: Micros,
) -> Result<(Token, Session), ManagementError> {
    link_settings(management)?;
    let ticket = take_link(management, link, now).await?;
    let membership = ticket.membership;
    let (_, user) = find_link_member(management, ticket).await?;
    let new_session = NewSession {
        memberships: vec![membership],
        person: PersonId::from_user(user.id),
        email: user.email,
        provider: None,
        id_token: None,
        previous,
    };
    start_session(management, new_session, client, now).await
}

/// Shows what a link offers, for the page that asks for confirmation before the link is taken.
///
/// The ticket is taken and put back unchanged: a sign-in with the link at the same moment may find it gone.
///
/// # Errors
/// As for [`sign_in_with_link`](super::sign_in_with_link).
pub async fn preview_link(
    management: &Management,
    link: &TokenDigest,
    now: Micros,
) -> Result<LinkPreview, ManagementError> {
    link_settings(management)?;
    let ticket = take_link(management, link, now).await?;
    management.state.change(ticket.put(*link)).await?;
    let (org, user) = find_link_member(management, ticket).await?;
    Ok(LinkPreview { email: user.email, org: org.name, expires: ticket.expires })
}

fn link_settings(management: &Management) -> Result<&SessionSettings, ManagementError> {
    let settings = session_settings(management)?;
    if settings.links { Ok(settings) } else { Err(ManagementError::LinksDisabled) }
}

async fn take_link(management: &Management, link: &TokenDigest, now: Micros) -> Result<LinkTicket, ManagementError> {
    let content = management.state.take_ticket(link, now).await?.ok_or(ManagementError::InvalidLink)?;
    // Sign-ins under way are tickets too: the `state` of one does not open a session as a link.
    serde_json::from_slice(&content).map_err(|_| ManagementError::InvalidLink)
}

/// Looks up the user that a link signs in, who may have been removed, withdrawn or given more since it was created, as
/// its administrator may have been.
async fn find_link_member(
    management: &Management,
    LinkTicket { membership: Membership { org, user }, by, .. }: LinkTicket,
) -> Result<(state::Org, state::User), ManagementError> {
    let member = management.state.member(org, user).await?;
    let member = member.filter(|(_, user)| user.is_active() && !user.is_service());
    let (org, user) = member.ok_or(ManagementError::InvalidLink)?;
    if let Some(by) = by {
        let admin = management.state.member(org.id, by).await?.map(|(_, admin)| admin);
        let admin = admin.filter(|admin| admin.is_active() && admin.is_admin()).ok_or(ManagementError::InvalidLink)?;
        check_covered(&admin, &user).map_err(|_| ManagementError::InvalidLink)?;
    }
    Ok((org, user))
}

/// Requires that an administrator has all permissions of a user: signed in as the user, they would give them to others.
fn check_covered(admin: &state::User, user: &state::User) -> Result<(), ManagementError> {
    let beyond = user.permissions.iter().find(|permission| !admin.permissions.contains(permission));
    beyond.map_or(Ok(()), |permission| Err(ManagementError::GrantExceeds(permission.clone())))
}

impl LinkTicket {
    fn put(self, digest: TokenDigest) -> Change {
        let content = serde_json::to_vec(&self).expect("ids and times are JSON");
        Change::PutTicket { digest, content, expires: self.expires, source: TicketSource::Operator }
    }
}
