//! The form that revokes a key.

use std::time::Duration;

use super::{HandlerResult, PageContext, render_form};
use crate::dashboard::error::DashboardError;
use crate::dashboard::pages::{NavEntry, RevokePage};
use crate::dashboard::response;
use crate::management::{Key, ManagementError};
use domain::clock::Micros;

/// Time after its last use in which a key counts as in use.
const IN_USE: Duration = Duration::from_secs(24 * 3600);

impl PageContext<'_> {
    pub(super) async fn show_revoke_key(&self, id: &str, error: Option<String>) -> HandlerResult {
        let key = self.unrevoked_key(id).await?;
        let report = self.key_activity(vec![key.id]).await?;
        let has_error = error.is_some();
        let page = RevokePage {
            layout: self.layout(NavEntry::Keys).await?,
            id: key.id.to_string(),
            last_use: self.last_use(&key, report.as_ref()),
            is_in_use: is_in_use(&key, self.request.now),
            name: key.name,
            owner: key.email,
            error,
        };
        render_form(&page, has_error)
    }

    /// Revokes a key. Of one in use the name was typed to confirm it: a revocation cannot be undone.
    pub(super) async fn revoke_key(&self, id: &str) -> HandlerResult {
        let key = self.unrevoked_key(id).await?;
        let form = self.request.form();
        if is_in_use(&key, self.request.now)
            && let Some(error) = name_error(&key, form.field("name"))
        {
            return self.show_revoke_key(id, Some(error.to_owned())).await;
        }
        self.management.revoke_key(&self.actor, key.id, self.request.now).await?;
        Ok(response::see_other(&format!("{}/keys/{}?done=revoked", self.base, key.id)))
    }

    /// The key with this id.
    ///
    /// # Errors
    /// [`ManagementError::Revoked`] when it is revoked, among those of showing a key.
    pub(super) async fn unrevoked_key(&self, id: &str) -> Result<Key, DashboardError> {
        let key = self.management.show_key(&self.actor, Self::key_id(id)?, self.request.now).await?;
        if key.revoked.is_some() { Err(ManagementError::Revoked(key.id).into()) } else { Ok(key) }
    }
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
