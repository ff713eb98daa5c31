//! The page of the changes of an organization.

use super::{HandlerResult, PageContext, keys, render};
use crate::dashboard::pages::{AuditPage, ChangeRow, NavEntry, Paging, link};
use crate::management;
use crate::management::{ChangeEntry, ChangeUser};
use domain::page::PageLimit;

/// Changes on a page.
const PAGE_SIZE: PageLimit = PageLimit::of(50);

pub(super) async fn list_changes(context: &PageContext<'_>) -> HandlerResult {
    let page = context.page_query(PAGE_SIZE);
    let listed =
        management::list_changes(context.management, &context.actor, &context.org(), &page, context.request.now).await;
    let listed = context.if_readable(listed, "the changes of the organization")?;
    let path = format!("{}/audit", context.base);
    let next = listed.as_ref().and_then(|listed| listed.page.next.as_deref());
    let paging = Paging::new(page.cursor.as_deref(), next, |cursor| link(&path, &[("cursor", cursor)]));
    let source = listed.as_ref().map(|listed| keys::record_source(context, &listed.gateway, listed.view.as_ref()));
    let rows = listed.map(|listed| listed.page.items.iter().map(|change| change_row(context, change)).collect());
    let layout = context.layout(NavEntry::Audit).await?;
    render(&AuditPage { layout, all_users: context.user.is_admin(), rows, paging, source })
}

fn change_row(context: &PageContext<'_>, change: &ChangeEntry) -> ChangeRow {
    ChangeRow {
        time: context.timestamp(change.time),
        action: change.action.clone(),
        by: change.maker(),
        subject: change.subject.as_ref().map(ChangeUser::label),
        key: change.key_id.map(|key| key.to_string()),
        ip: change.ip.map(|ip| ip.to_string()),
        outcome: change.outcome.name(),
    }
}
