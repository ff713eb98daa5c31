//! The form that revokes a key.

use std::time::Duration;

use super::{HandlerResult, PageContext, key_id, keys, render_form};
use crate::dashboard::pages::{NavEntry, RevokePage};
use crate::dashboard::response;
use crate::management;
use crate::management::{Key, ManagementError};
use domain::clock::Micros;

/// Time after its last use in which a key counts as in use.
const IN_USE: Duration = Duration::from_secs(24 * 3600);

pub(super) async fn show_revoke_key(context: &PageContext<'_>, id: &str, error: Option<String>) -> HandlerResult {
    let key = unrevoked_key(context, id).await?;
    let report = keys::key_activity(context, vec![key.id]).await?;
    let has_error = error.is_some();
    let page = RevokePage {
        layout: context.layout(NavEntry::Keys).await?,
        id: key.id.to_string(),
        last_use: keys::last_use(context, &key, report.as_ref()),
        is_in_use: is_in_use(&key, context.request.now),
        name: key.name,
        owner: key.email,
        error,
    };
    render_form(&page, has_error)
}

/// Revokes a key. Of one in use the name was typed to confirm it: a revocation cannot be undone.
pub(super) async fn revoke_key(context: &PageContext<'_>, id: &str) -> HandlerResult {
    let key = unrevoked_key(context, id).await?;
    let form = context.request.form();
    if is_in_use(&key, context.request.now)
        && let Some(error) = name_error(&key, form.field("name"))
    {
        return show_revoke_key(context, id, Some(error.to_owned())).await;
    }
    management::revoke_key(context.management, &context.actor, key.id, context.request.now).await?;
    Ok(response::see_other(&format!("{}/keys/{}?done=revoked", context.base, key.id)))
}

/// The key with this id.
///
/// # Errors
/// [`ManagementError::Revoked`] when it is revoked, among those of showing a key.
pub(super) async fn unrevoked_key(context: &PageContext<'_>, id: &str) -> Result<Key, ManagementError> {
    let key = management::show_key(context.management, &context.actor, key_id(id)?, context.request.now).await?;
    if key.revoked.is_some() { Err(ManagementError::Revoked(key.id)) } else { Ok(key) }
}

/// Returns `true` if a key was used in the last 24 hours.
pub(super) fn is_in_use(key: &Key, now: Micros) -> bool {
    key.last_used.is_some_and(|used| used.after(IN_USE) >= now)
}

/// The error of a name that was typed to confirm what ends requests with a key in use.
pub(super) fn name_error(key: &Key, typed: &str) -> Option<&'static str> {
    match typed {
        typed if typed == key.name => None,
        // Also when the key came into use after its form was shown.
        "" => Some("The key is in use. Type its name to confirm."),
        _ => Some("This is not the key's name. Type it exactly as it is shown."),
    }
}
