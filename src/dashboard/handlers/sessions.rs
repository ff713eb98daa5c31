//! The table of web sessions, and ending one.

use super::{HandlerResult, PageContext, render};
use crate::dashboard::error::DashboardError;
use crate::dashboard::pages::{NavEntry, Paging, SessionRow, SessionsPage, link};
use crate::dashboard::response;
use crate::identity::SessionId;
use crate::management::Session;

/// Sessions on a page.
const PAGE_SIZE: usize = 50;

impl PageContext<'_> {
    pub(super) async fn list_sessions(&self) -> HandlerResult {
        let mut sessions = self.management.list_sessions(&self.actor, Some(&self.org()), self.request.now).await?;
        // The user's current session first, then the newest: the sort is stable.
        sessions.reverse();
        sessions.sort_by_key(|session| session.id != self.user.session.id);
        let path = format!("{}/sessions", self.base);
        let href = |page: u64| link(&path, &[("page", &page.to_string())]);
        let paging = Paging::new(self.page_number(), sessions.len() as u64, PAGE_SIZE as u64, href);
        let from = usize::try_from(paging.page - 1).unwrap_or(0).saturating_mul(PAGE_SIZE);
        let rows = sessions.iter().skip(from).take(PAGE_SIZE).map(|session| self.session_row(session)).collect();
        let layout = self.layout(NavEntry::Sessions).await?;
        render(&SessionsPage { layout, all_users: self.user.is_admin(), rows, paging })
    }

    fn session_row(&self, session: &Session) -> SessionRow {
        SessionRow {
            id: session.id.to_string(),
            email: session.email.clone(),
            current: session.id == self.user.session.id,
            signed_in: self.timestamp(session.created),
            last_seen: self.timestamp(session.seen),
            ip: session.ip.map(|ip| ip.to_string()),
            user_agent: session.user_agent.clone(),
            provider: session.provider.clone().unwrap_or_else(|| "Sign-in link".to_owned()),
        }
    }

    pub(super) async fn end_session(&self, id: &str) -> HandlerResult {
        let session: SessionId = id.parse().map_err(|_| DashboardError::NotFound)?;
        self.management.end_session(&self.actor, session, self.request.now).await?;
        if session == self.user.session.id {
            let redirect = response::see_other(&format!("{}/signed-out", self.base));
            return Ok(response::without_session(redirect));
        }
        Ok(response::see_other(&format!("{}/sessions?done=ended", self.base)))
    }
}
