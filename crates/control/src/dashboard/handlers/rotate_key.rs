//! The form that rotates a key.
//!
//! - The form carries the last rotation that its reader knows of. When there was another one since,
//!   nothing is changed (409).
//! - A rotation that ends requests of a key in use at once is confirmed by the key's name, as a revocation is: one
//!   without an overlap, and one while a secret from an earlier rotation is still valid.

use super::revoke_key::{is_in_use, name_error};
use super::{HandlerResult, PageContext, key, new_key, render_form, revoke_key};
use crate::dashboard::pages::{NavEntry, Overlap, RotateErrors, RotatePage};
use crate::management;
use crate::management::{Key, Rotation};
use domain::clock::Micros;

/// Value of the form's last rotation for a key that was never rotated.
const NEVER: &str = "never";

/// Submitted form.
struct Input {
    overlap: Overlap,
    /// Time of the last rotation.
    rotated: Option<Micros>,
}

pub(super) async fn show_rotate_key(context: &PageContext<'_>, id: &str) -> HandlerResult {
    let key = revoke_key::unrevoked_key(context, id).await?;
    // The programs that use a key need time to get the new secret.
    let overlap = if is_in_use(&key, context.request.now) { Overlap::Day } else { Overlap::None };
    let rotated = key.rotated;
    rotate_form(context, key, &Input { overlap, rotated }, RotateErrors::default()).await
}

async fn rotate_form(context: &PageContext<'_>, key: Key, input: &Input, errors: RotateErrors) -> HandlerResult {
    let earlier_until = key::overlap_end(context, &key);
    let is_in_use = is_in_use(&key, context.request.now);
    let has_error = errors != RotateErrors::default();
    let page = RotatePage {
        layout: context.layout(NavEntry::Keys).await?,
        id: key.id.to_string(),
        rotated: input.rotated.map_or_else(|| NEVER.to_owned(), |rotated| rotated.0.to_string()),
        overlap: input.overlap,
        is_in_use,
        asks_name: errors.name.is_some() || is_in_use && earlier_until.is_some(),
        earlier_until,
        name: key.name,
        owner: key.email,
        errors,
    };
    render_form(&page, has_error)
}

pub(super) async fn rotate_key(context: &PageContext<'_>, id: &str) -> HandlerResult {
    let key = revoke_key::unrevoked_key(context, id).await?;
    let form = context.request.form();
    let overlap = Overlap::from_value(form.field("overlap"));
    let rotated = parse_rotated(form.field("rotated"));
    let (Some(overlap), Some(rotated)) = (overlap, rotated) else {
        let input = Input { overlap: overlap.unwrap_or(Overlap::Day), rotated: key.rotated };
        let errors = RotateErrors { overlap: Some("Choose one of these."), name: None };
        return rotate_form(context, key, &input, errors).await;
    };
    // A stale form is refused below, with who was first: there is nothing to confirm.
    let needs_name = rotated == key.rotated && ends_requests(context, &key, overlap);
    if needs_name && let Some(error) = name_error(&key, form.field("name")) {
        let errors = RotateErrors { overlap: None, name: Some(error) };
        return rotate_form(context, key, &Input { overlap, rotated }, errors).await;
    }
    let sealer = management::key_sealer(context.management, context.user).await?;
    let rotation = Rotation::new(Some(overlap.duration())).after(rotated);
    let new = management::rotate_key(context.management, &context.actor, key.id, rotation, context.request.now).await?;
    new_key::lead_to_new_key(context, &sealer, &new)
}

/// Returns `true` if a rotation refuses a secret at once with which programs probably send requests.
fn ends_requests(context: &PageContext<'_>, key: &Key, overlap: Overlap) -> bool {
    is_in_use(key, context.request.now) && (overlap == Overlap::None || key::overlap_end(context, key).is_some())
}

/// Parses the time of the last rotation. `None`: it is not one, as in a form of an earlier version.
#[allow(clippy::option_option, reason = "a key that was never rotated has no time")]
fn parse_rotated(text: &str) -> Option<Option<Micros>> {
    if text == NEVER { Some(None) } else { text.parse().ok().map(|micros| Some(Micros(micros))) }
}
