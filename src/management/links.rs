//! Sign-in links: for the first admin, and for the day on which the identity provider is down.
//!
//! - A link is a ticket of the state: it is taken once, by one of all who try.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::actor::By;
use super::sessions::{Entry, subject};
use super::{Link, Management, ManagementError, Origin, Reply, SessionSettings};
use crate::clock::Micros;
use crate::secret::Secret;
use crate::session::{Token, TokenDigest};
use crate::state::{self, Change, Membership, Session};

/// For how long a sign-in link is good.
const LINK: Duration = Duration::from_secs(5 * 60);
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

impl Management {
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
        let (memberships, email) = (vec![membership], user.email);
        let entry = Entry { memberships, email, provider: None, id_token: None, previous };
        self.begin(entry, origin, now).await
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
}

impl Good {
    fn ticket(self, digest: TokenDigest) -> Change {
        let content = serde_json::to_vec(&self).expect("ids and times are JSON");
        Change::PutTicket { digest, content, expires: self.expires }
    }
}
