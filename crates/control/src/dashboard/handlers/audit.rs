//! The page of the changes of an organization, on which an administrator also finds a request by its id.

use std::time::Duration;

use super::policy_form::parse_date;
use super::{HandlerResult, PageContext, key, keys, render, render_form};
use crate::dashboard::api;
use crate::dashboard::pages::{
    AuditPage, ChangeFields, ChangeRow, FoundRequest, NavEntry, Paging, RequestSearch, link,
};
use crate::management::{self, ACTIONS, ChangeEntry, ChangeFilter, ChangeUser, ManagementError, UsePage};
use domain::clock::Micros;
use domain::page::{PageLimit, PageQuery};
use domain::problem::sentence;
use journal::audit::{Filter, Record};

/// Changes on a page.
const PAGE_SIZE: PageLimit = PageLimit::of(50);
const DAY: Duration = Duration::from_secs(24 * 3600);

pub(super) async fn list_changes(context: &PageContext<'_>) -> HandlerResult {
    let page = context.page_query(PAGE_SIZE);
    let (mut fields, filter) = read_filter(context);
    let path = format!("{}/audit", context.base);
    let (org, now) = (context.org(), context.request.now);
    let listed = match filter {
        Ok(filter) => management::list_changes(context.management, &context.actor, &org, &filter, &page, now).await,
        Err(error) => Err(ManagementError::InvalidQuery(error)),
    };
    let listed = match listed {
        Err(error @ (ManagementError::NoUser(_) | ManagementError::InvalidQuery(_))) => {
            fields.error = Some(match error {
                ManagementError::InvalidQuery(error) => error,
                _ => "This organization has no user with this address or ID.".to_owned(),
            });
            let layout = context.layout(NavEntry::Audit).await?;
            let page =
                AuditPage { layout, filter: fields, search: None, rows: None, paging: Paging::default(), source: None };
            return render_form(&page, true);
        }
        listed => context.if_readable(listed, "the changes of the organization")?,
    };
    let next = listed.as_ref().and_then(|listed| listed.page.next.as_deref());
    let paging = Paging::new(page.cursor.as_deref(), next, |cursor| {
        link(&path, &[&fields.query()[..], &[("cursor", cursor)]].concat())
    });
    let source = listed.as_ref().map(|listed| keys::record_source(context, &listed.gateway, listed.view.as_ref()));
    let rows = listed.map(|listed| listed.page.items.iter().map(|change| change_row(context, change)).collect());
    let layout = context.layout(NavEntry::Audit).await?;
    let search = if context.user.is_admin() { Some(search_request(context).await?) } else { None };
    render(&AuditPage { layout, filter: fields, search, rows, paging, source })
}

/// The filter of the changes, and its fields as they are shown again; else the error in one of them.
fn read_filter(context: &PageContext<'_>) -> (ChangeFields, Result<ChangeFilter, String>) {
    let field = |name| context.request.parameter(name).unwrap_or_default().trim().to_owned();
    let mut fields = ChangeFields {
        by: field("by"),
        action: field("action"),
        key: field("key"),
        from: field("from"),
        to: field("to"),
        ..ChangeFields::default()
    };
    let filter = parse_filter(&fields);
    if let Ok(filter) = &filter {
        let time = |time: Option<Micros>| time.map(|time| time.to_string()).unwrap_or_default();
        let key = filter.key.map(|key| key.to_string()).unwrap_or_default();
        let query = [
            ("by", &*filter.by),
            ("action", filter.action.unwrap_or_default()),
            ("key", &key),
            ("since", &time(filter.since)),
            ("until", &time(filter.until)),
        ];
        let address = format!("{}/orgs/{}/changes", api::base(context.base), context.org());
        fields.csv = link(&format!("{address}.csv"), &query);
        fields.ndjson = link(&format!("{address}.ndjson"), &query);
    }
    (fields, filter)
}

fn parse_filter(fields: &ChangeFields) -> Result<ChangeFilter, String> {
    let day = |text: &str| match text {
        "" => Ok(None),
        text => parse_date(text).map(Some).ok_or("Enter days as YYYY-MM-DD."),
    };
    let key = match fields.key.as_str() {
        "" => None,
        key => Some(key.parse().map_err(|_| "A key ID is the nine characters after sk_live_.")?),
    };
    let action = match fields.action.as_str() {
        "" => None,
        name => Some(ACTIONS.iter().find(|(known, _)| *known == name).ok_or("Choose one of these changes.")?.0),
    };
    let until = day(&fields.to)?.map(|day| day.after(DAY));
    Ok(ChangeFilter { by: fields.by.clone(), key, action, since: day(&fields.from)?, until, ..ChangeFilter::default() })
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
