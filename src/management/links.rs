//! Sign-in links: for the first admin, and for the day on which the identity provider is down.
//!
//! - A link is a ticket of the state: it is taken once, by one of all who try.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::actor::AuditActor;
use super::sessions::{NewSession, target};
use super::{ClientInfo, Link, Management, ManagementError, Reply, SessionSettings};
use crate::clock::Micros;
use crate::secret::Secret;
use crate::session::{Token, TokenDigest};
use crate::state::{self, Change, Membership, Session};

/// For how long a sign-in link is good.
const LINK: Duration = Duration::from_secs(5 * 60);
/// What a link offers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkPreview {
    /// Whom it signs in.
    pub email: String,
    /// The name of the organization.
    pub org: String,
    /// Until when.
    pub expires: Micros,
}

/// What a link is good for, as its ticket has it.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct LinkTicket {
    membership: Membership,
    expires: Micros,
}

impl Management {
    fn links(&self) -> Result<&SessionSettings, ManagementError> {
        let settings = self.sessions()?;
        if settings.links { Ok(settings) } else { Err(ManagementError::NoLinks) }
    }

    /// Makes a link that signs a user in, once.
    pub(super) async fn link_session(
        &self,
        org: &str,
        user: &str,
        by: AuditActor<'_>,
    ) -> Result<Reply, ManagementError> {
        let settings = self.links()?;
        let org = self.org(org).await?;
        let user = self.user(org.id, user).await?;
        let (token, expires) = (Token::generate()?, by.now.after(LINK));
        let ticket = LinkTicket { membership: Membership { org: org.id, user: user.id }, expires };
        let change = ticket.ticket(token.digest());
        self.change("session.link", target(org.id, user.id), change, by).await?;
        let url = Secret::new(format!("{}/link/{}", settings.url, token.expose()));
        Ok(Reply::Link { link: Link::new(url, &user.email, expires) })
    }

    /// Signs in by a link: a new session, and what its browser is to hold.
    ///
    /// # Errors
    /// [`ManagementError::BadLink`] when it was used, has expired, or never was one; others as for all operations.
    pub async fn sign_in_with_link(
        &self,
        link: &TokenDigest,
        previous: Option<TokenDigest>,
        client: ClientInfo,
        now: Micros,
    ) -> Result<(Token, Session), ManagementError> {
        self.links()?;
        let LinkTicket { membership, .. } = self.take_link(link, now).await?;
        let (_, user) = self.linked(membership).await?;
        let (memberships, email) = (vec![membership], user.email);
        let new_session = NewSession { memberships, email, provider: None, id_token: None, previous };
        self.begin(new_session, client, now).await
    }

    /// What a link offers, for a page that asks before it is taken.
    ///
    /// It is taken, and put back as it was: somebody who takes it at the same moment may be told that it is gone.
    ///
    /// # Errors
    /// As [`Management::sign_in_with_link`].
    pub async fn preview_link(&self, link: &TokenDigest, now: Micros) -> Result<LinkPreview, ManagementError> {
        self.links()?;
        let ticket = self.take_link(link, now).await?;
        self.state.change(ticket.ticket(*link)).await?;
        let (org, user) = self.linked(ticket.membership).await?;
        Ok(LinkPreview { email: user.email, org: org.name, expires: ticket.expires })
    }

    async fn take_link(&self, link: &TokenDigest, now: Micros) -> Result<LinkTicket, ManagementError> {
        let content = self.state.take_ticket(link, now).await?.ok_or(ManagementError::BadLink)?;
        serde_json::from_slice(&content).map_err(|_| ManagementError::BadLink)
    }

    /// Whom a link signs in, unless they were removed meanwhile.
    async fn linked(&self, membership: Membership) -> Result<(state::Org, state::User), ManagementError> {
        let member = self.state.member(membership.org, membership.user).await?;
        member.filter(|(_, user)| user.removed.is_none()).ok_or(ManagementError::BadLink)
    }
}

impl LinkTicket {
    fn ticket(self, digest: TokenDigest) -> Change {
        let content = serde_json::to_vec(&self).expect("ids and times are JSON");
        Change::PutTicket { digest, content, expires: self.expires }
    }
}
