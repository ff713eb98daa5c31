//! Keys that were selected in the list: disabled or revoked together, after one page that lists them.
//!
//! - Each is a change of its own, with its record in the audit. What fails for one leaves the others, and is listed.
//! - There are [`MAX_SELECTED`] at most: a request costs a bounded amount of work.
//! - A revocation of keys in use is confirmed by their number, as that of one key is by its name.

use http::StatusCode;

use super::revoke_key::is_in_use;
use super::{HandlerResult, PageContext, key_id, render_form};
use crate::management;

use crate::dashboard::pages::{NavEntry, SelectedAction, SelectedPage, SelectedResultPage, SelectedRow};
use crate::dashboard::response;
use crate::management::{Key, ManagementError};
use domain::key::KeyId;

/// Keys that are changed together at most: a page of the list.
const MAX_SELECTED: usize = 25;

pub(super) async fn show_selected_keys(context: &PageContext<'_>) -> HandlerResult {
    let action = context.request.parameter("action").unwrap_or_default();
    selected_form(context, action, context.request.parameters("key").collect(), None).await
}

async fn selected_form(
    context: &PageContext<'_>,
    action: &str,
    ids: Vec<&str>,
    count_error: Option<&str>,
) -> HandlerResult {
    let Some(action) = SelectedAction::from_value(action) else { return Err(ManagementError::NotFound) };
    let (rows, error) = match check_selection(&ids) {
        Err(error) => (Vec::new(), Some(error)),
        Ok(()) => (selected_keys(context, ids).await?, count_error),
    };
    let rows = rows.iter().map(|key| selected_row(context, key)).collect();
    let layout = context.layout(NavEntry::Keys).await?;
    let has_error = error.is_some();
    render_form(&SelectedPage { layout, action, rows, error: error.map(str::to_owned) }, has_error)
}

pub(super) async fn change_selected_keys(context: &PageContext<'_>) -> HandlerResult {
    let form = context.request.form();
    let ids: Vec<&str> = form.fields("key").collect();
    let Some(action) = SelectedAction::from_value(form.field("action")).filter(|_| check_selection(&ids).is_ok())
    else {
        return selected_form(context, form.field("action"), ids, None).await;
    };
    let keys = selected_keys(context, ids.clone()).await?;
    let has_key_in_use = keys.iter().any(|key| is_in_use(key, context.request.now));
    let needs_count = action == SelectedAction::Revoke && has_key_in_use;
    if needs_count && form.field("count") != keys.len().to_string() {
        let error = format!("Keys in use are among these. Type {} to confirm.", keys.len());
        return selected_form(context, action.value(), ids, Some(&error)).await;
    }
    let mut failures = Vec::new();
    for key in &keys {
        if let Err(error) = change_selected_key(context, action, key.id).await {
            failures.push((selected_row(context, key), error.for_people()));
        }
    }
    if failures.is_empty() {
        return Ok(response::see_other(&format!("{}/keys?done={}-selected", context.base, action.participle())));
    }
    let changed = keys.len() - failures.len();
    let page = SelectedResultPage { layout: context.layout(NavEntry::Keys).await?, action, changed, failures };
    let status = if changed > 0 { StatusCode::OK } else { StatusCode::CONFLICT };
    Ok(response::page(status, askama::Template::render(&page)?))
}

async fn change_selected_key(
    context: &PageContext<'_>,
    action: SelectedAction,
    id: KeyId,
) -> Result<Key, ManagementError> {
    match action {
        SelectedAction::Disable => {
            management::disable_key(context.management, &context.actor, id, false, context.request.now).await
        }
        SelectedAction::Revoke => {
            management::revoke_key(context.management, &context.actor, id, context.request.now).await
        }
    }
}

/// The keys with these ids, each once. When one of them does not exist, nothing is shown or changed.
async fn selected_keys(context: &PageContext<'_>, ids: Vec<&str>) -> Result<Vec<Key>, ManagementError> {
    let mut keys: Vec<Key> = Vec::new();
    for id in ids {
        let id = key_id(id)?;
        if keys.iter().all(|key| key.id != id) {
            keys.push(management::show_key(context.management, &context.actor, id, context.request.now).await?);
        }
    }
    Ok(keys)
}

fn selected_row(context: &PageContext<'_>, key: &Key) -> SelectedRow {
    SelectedRow {
        id: key.id.to_string(),
        name: key.name.clone(),
        owner: key.email.clone(),
        state: key.status,
        last_used: key.last_used.map(|time| context.timestamp(time)),
        is_in_use: is_in_use(key, context.request.now),
    }
}

fn check_selection(ids: &[&str]) -> Result<(), &'static str> {
    match ids.len() {
        0 => Err("No key is selected. Select keys in the list first."),
        1..=MAX_SELECTED => Ok(()),
        _ => Err("Select 25 keys at most."),
    }
}
