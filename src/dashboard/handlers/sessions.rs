//! Who is signed in.

use super::super::error::DashboardError;
use super::super::pages::{NavEntry, Paging, SessionRow, SessionsPage, link};
use super::super::response::{self, DashboardResponse};
use super::{PageContext, page};
use crate::identity::SessionId;
use crate::management::{Operation, Reply, Session};

/// Sessions on a page.
const PAGE: usize = 50;

impl PageContext<'_> {
    pub(super) async fn sessions(&self) -> Result<DashboardResponse, DashboardError> {
        let Reply::Sessions { mut sessions } = self.perform(Operation::ListSessions { org: Some(self.org()) }).await?
        else {
            return Err(DashboardError::Internal);
        };
        // The newest first, and before all others the one that is looking.
        sessions.reverse();
        sessions.sort_by_key(|session| session.id != self.person.session.id);
        let asked = self.request.parameter("page").and_then(|page| page.parse().ok()).unwrap_or(1);
        let path = format!("{}/sessions", self.base);
        let address = |page: u64| link(&path, &[("page", &page.to_string())]);
        let paging = Paging::of(asked, sessions.len() as u64, PAGE as u64, address);
        let from = usize::try_from(paging.page - 1).unwrap_or(0).saturating_mul(PAGE);
        let rows = sessions.iter().skip(from).take(PAGE).map(|session| self.session(session)).collect();
        let layout = self.layout(NavEntry::Sessions).await?;
        page(&SessionsPage { layout, all: self.person.is_admin(), rows, paging })
    }

    fn session(&self, session: &Session) -> SessionRow {
        SessionRow {
            id: session.id.to_string(),
            email: session.email.clone(),
            current: session.id == self.person.session.id,
            signed_in: self.when(session.created),
            seen: self.when(session.seen),
            ip: session.ip.map(|ip| ip.to_string()),
            user_agent: session.user_agent.clone(),
            provider: session.provider.clone().unwrap_or_else(|| "Sign-in link".to_owned()),
        }
    }

    pub(super) async fn end_session(&self, id: &str) -> Result<DashboardResponse, DashboardError> {
        let session: SessionId = id.parse().map_err(|_| DashboardError::NotFound)?;
        self.perform(Operation::EndSession { session }).await?;
        if session == self.person.session.id {
            let answer = response::see_other(&format!("{}/signed-out", self.base));
            return Ok(response::without_session(answer));
        }
        Ok(response::see_other(&format!("{}/sessions?done=ended", self.base)))
    }
}
