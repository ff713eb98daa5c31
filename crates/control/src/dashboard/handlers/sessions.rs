//! The table of web sessions, and ending one.

use super::{HandlerResult, PageContext, render};
use crate::dashboard::pages::{NavEntry, Paging, SessionRow, SessionsPage, link};
use crate::dashboard::response;
use crate::management;
use crate::management::{ManagementError, Session};
use domain::identity::SessionId;
use domain::page::PageLimit;

/// Sessions on a page.
const PAGE_SIZE: PageLimit = PageLimit::of(50);

pub(super) async fn list_sessions(context: &PageContext<'_>) -> HandlerResult {
    let page = context.page_query(PAGE_SIZE);
    let org = context.org();
    let listed =
        management::list_sessions(context.management, &context.actor, Some(&org), true, &page, context.request.now)
            .await?;
    let mut sessions = listed.items;
    // The session that shows the page stands at the beginning of the first page, and nowhere else.
    sessions.retain(|session| session.id != context.user.session.id);
    if page.cursor.is_none() {
        sessions.insert(0, context.user.session.clone().into());
    }
    let path = format!("{}/sessions", context.base);
    let href = |cursor: &str| link(&path, &[("cursor", cursor)]);
    let paging = Paging::new(page.cursor.as_deref(), listed.next.as_deref(), href);
    let rows = sessions.iter().map(|session| session_row(context, session)).collect();
    let layout = context.layout(NavEntry::Sessions).await?;
    render(&SessionsPage { layout, all_users: context.user.is_admin(), rows, paging })
}

fn session_row(context: &PageContext<'_>, session: &Session) -> SessionRow {
    SessionRow {
        id: session.id.to_string(),
        email: session.email.clone(),
        current: session.id == context.user.session.id,
        signed_in: context.timestamp(session.created),
        last_seen: context.timestamp(session.seen),
        ip: session.ip.map(|ip| ip.to_string()),
        user_agent: session.user_agent.clone(),
        provider: session.provider.clone().unwrap_or_else(|| "Sign-in link".to_owned()),
    }
}

/// Ends all sessions of the user but this one.
pub(super) async fn end_other_sessions(context: &PageContext<'_>) -> HandlerResult {
    management::end_other_sessions(context.management, context.user, context.request.now).await?;
    Ok(response::see_other(&format!("{}/sessions?done=ended-others", context.base)))
}

pub(super) async fn end_session(context: &PageContext<'_>, id: &str) -> HandlerResult {
    let session: SessionId = id.parse().map_err(|_| ManagementError::NotFound)?;
    management::end_session(context.management, &context.actor, session, context.request.now).await?;
    if session == context.user.session.id {
        let redirect = response::see_other(&format!("{}/signed-out", context.base));
        return Ok(response::without_session(redirect));
    }
    Ok(response::see_other(&format!("{}/sessions?done=ended", context.base)))
}
