//! The page of the changes of an organization, on which an administrator also finds a request by its id.

use super::{HandlerResult, PageContext, key, keys, render};
use crate::dashboard::pages::{AuditPage, ChangeRow, FoundRequest, NavEntry, Paging, RequestSearch, link};
use crate::management::{self, ChangeEntry, ChangeUser, ManagementError, UsePage};
use domain::page::{PageLimit, PageQuery};
use domain::problem::sentence;
use journal::audit::{Filter, Record};

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
    let search = if context.user.is_admin() { Some(search_request(context).await?) } else { None };
    render(&AuditPage { layout, search, rows, paging, source })
}

/// The search for a request by the id that its client was sent: query parameter `id`.
async fn search_request(context: &PageContext<'_>) -> Result<RequestSearch, ManagementError> {
    let id = context.request.parameter("id").unwrap_or_default().trim().to_owned();
    if id.is_empty() {
        return Ok(RequestSearch::default());
    }
    let Ok(parsed) = id.parse() else {
        return Ok(RequestSearch { id, note: Some("This is not the ID of a request.".into()), found: Vec::new() });
    };
    let filter = Filter { id: Some(parsed), ..Filter::default() };
    let page = PageQuery::first(PageLimit::of(1));
    let org = context.org();
    let listed =
        management::list_records(context.management, &context.actor, Some(&org), filter, &page, context.request.now)
            .await;
    let Some(UsePage { page, missing, .. }) = context.if_readable(listed, "the record of a request")? else {
        return Ok(RequestSearch { id, note: Some("The records cannot be read right now.".into()), found: Vec::new() });
    };
    let covering = missing.iter().flat_map(|missing| &missing.records);
    let found = page.items.iter().chain(covering).map(|record| found_request(context, record)).collect();
    Ok(RequestSearch { id, note: missing.map(|missing| sentence(&missing.detail)), found })
}

fn found_request(context: &PageContext<'_>, record: &Record) -> FoundRequest {
    FoundRequest { key: record.key_id.map(|key| key.to_string()), row: key::use_row(context, record) }
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
