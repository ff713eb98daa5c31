//! The table of an organization's users, and suspending one.

use super::{HandlerResult, PageContext, render};
use crate::dashboard::pages::{NavEntry, Paging, ResponsibleCell, SuspendUserPage, UserRow, UsersPage, link};
use crate::dashboard::response;
use crate::management;
use crate::management::{KeyQuery, KeyStatus, User};
use domain::page::{PageLimit, PageQuery};

/// Users on a page.
const PAGE_SIZE: PageLimit = PageLimit::of(50);
/// Pages of keys that are counted at most.
const MAX_KEY_PAGES: u32 = 5;

pub(super) async fn list_users(context: &PageContext<'_>) -> HandlerResult {
    let page = context.page_query(PAGE_SIZE);
    let listed =
        management::list_users(context.management, &context.actor, &context.org(), &page, context.request.now).await?;
    let path = format!("{}/users", context.base);
    let paging =
        Paging::new(page.cursor.as_deref(), listed.next.as_deref(), |cursor: &str| link(&path, &[("cursor", cursor)]));
    let rows = listed.items.iter().map(|user| user_row(context, user)).collect();
    let layout = context.layout(NavEntry::Users).await?;
    render(&UsersPage { layout, rows, paging, are_managed: context.management.admins_manage_people() })
}

fn user_row(context: &PageContext<'_>, user: &User) -> UserRow {
    let permissions: Vec<&str> = user.permissions.iter().map(|permission| permission.as_str()).collect();
    UserRow {
        id: user.id.to_string(),
        email: user.email.clone(),
        is_viewer: user.id == context.user.user.id,
        responsible: user.responsible.as_ref().map(ResponsibleCell::new),
        state: user.status(),
        is_of_operator: user.suspended_by_operator,
        permissions: permissions.join(", "),
        plan: user.plan.as_ref().map(ToString::to_string),
        created: context.timestamp(user.created),
    }
}

pub(super) async fn show_suspend_user(context: &PageContext<'_>, id: &str) -> HandlerResult {
    let (org, now) = (context.org(), context.request.now);
    let user = management::show_user(context.management, &context.actor, &org, id, now).await?;
    let query = KeyQuery { user: user.id.to_string(), status: Some(KeyStatus::Active), ..KeyQuery::default() };
    let mut page = PageQuery::first(PageLimit::MAX);
    let (mut count, mut pages) = (0, 0);
    let keys = loop {
        let listed = management::list_keys(context.management, &context.actor, &org, &query, &page, now).await?;
        count += listed.items.len() as u64;
        pages += 1;
        match listed.next {
            None => break Some(count),
            Some(_) if pages == MAX_KEY_PAGES => break None,
            next => page.cursor = next,
        }
    };
    let layout = context.layout(NavEntry::Users).await?;
    render(&SuspendUserPage { layout, id: user.id.to_string(), email: user.email, keys })
}

pub(super) async fn suspend_user(context: &PageContext<'_>, id: &str) -> HandlerResult {
    management::suspend_user(context.management, &context.actor, &context.org(), id, context.request.now).await?;
    Ok(response::see_other(&format!("{}/users?done=suspended", context.base)))
}

pub(super) async fn resume_user(context: &PageContext<'_>, id: &str) -> HandlerResult {
    management::resume_user(context.management, &context.actor, &context.org(), id, context.request.now).await?;
    Ok(response::see_other(&format!("{}/users?done=resumed", context.base)))
}
