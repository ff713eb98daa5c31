//! The table of web sessions, and ending one.

use super::{HandlerResult, PageContext, render};
use crate::dashboard::error::DashboardError;
use crate::dashboard::pages::{NavEntry, Paging, SessionRow, SessionsPage, link};
use crate::dashboard::response;
use crate::management::Session;
use domain::identity::SessionId;
use domain::page::PageLimit;

/// Sessions on a page.
const PAGE_SIZE: PageLimit = PageLimit::of(50);

impl PageContext<'_> {
    pub(super) async fn list_sessions(&self) -> HandlerResult {
        let page = self.page_query(PAGE_SIZE);
        let org = self.org();
        let listed = self.management.list_sessions(&self.actor, Some(&org), true, &page, self.request.now).await?;
        let mut sessions = listed.items;
        // The session that shows the page stands at the beginning of the first page, and nowhere else.
        sessions.retain(|session| session.id != self.user.session.id);
        if page.cursor.is_none() {
            sessions.insert(0, self.user.session.clone().into());
        }
        let path = format!("{}/sessions", self.base);
        let href = |cursor: &str| link(&path, &[("cursor", cursor)]);
        let paging = Paging::new(page.cursor.as_deref(), listed.next.as_deref(), href);
        let rows = sessions.iter().map(|session| self.session_row(session)).collect();
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

    /// Ends all sessions of the user but this one.
    pub(super) async fn end_other_sessions(&self) -> HandlerResult {
        self.management.end_other_sessions(self.user, self.request.now).await?;
        Ok(response::see_other(&format!("{}/sessions?done=ended-others", self.base)))
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
