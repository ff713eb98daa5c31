//! The forms with which administrators add, permit, invite and remove people, where they manage them.

use super::{HandlerResult, PageContext, render, render_form};
use crate::dashboard::pages::{AddUserPage, NavEntry, PermissionChoice, UserPage};
use crate::dashboard::response;
use crate::management;
use crate::management::{Link, ManagementError, User, UserUpdate};
use crate::request::Form;
use domain::identity::Permission;

pub(super) async fn show_add_user(context: &PageContext<'_>) -> HandlerResult {
    management::check_people_access(context.management, &context.actor, &context.org(), context.request.now).await?;
    add_form(context, &Form::default(), None).await
}

async fn add_form(context: &PageContext<'_>, form: &Form, error: Option<String>) -> HandlerResult {
    let is_ticked = |name: &str| form.fields("permission").any(|ticked| ticked == name);
    let page = AddUserPage {
        layout: context.layout(NavEntry::Users).await?,
        email: form.field("email").to_owned(),
        permissions: choices(&context.user.user.permissions, is_ticked),
        error,
    };
    render_form(&page, page.error.is_some())
}

pub(super) async fn add_user(context: &PageContext<'_>) -> HandlerResult {
    let form = context.request.form();
    let (email, grants) = (form.field("email"), permissions(&form)?.into());
    let (org, now) = (context.org(), context.request.now);
    match management::create_user(context.management, &context.actor, &org, email, grants, now).await {
        Ok(user) => Ok(response::see_other(&format!("{}/users/{}?done=added", context.base, user.id))),
        Err(error @ (ManagementError::InvalidEmail(_) | ManagementError::Taken(_))) => {
            add_form(context, &form, Some(error.for_people())).await
        }
        Err(error) => Err(error),
    }
}

pub(super) async fn show_user(context: &PageContext<'_>, id: &str) -> HandlerResult {
    let (org, now) = (context.org(), context.request.now);
    management::check_people_access(context.management, &context.actor, &org, now).await?;
    let user = management::show_user(context.management, &context.actor, &org, id, now).await?;
    render(&user_page(context, user, None).await?)
}

async fn user_page(context: &PageContext<'_>, user: User, link: Option<Link>) -> Result<UserPage, ManagementError> {
    let mut offered = [&context.user.user.permissions[..], &user.permissions].concat();
    offered.sort_unstable();
    offered.dedup();
    let is_ticked = |name: &str| user.permissions.iter().any(|permission| permission.as_str() == name);
    Ok(UserPage {
        layout: context.layout(NavEntry::Users).await?,
        id: user.id.to_string(),
        state: user.status(),
        permissions: choices(&offered, is_ticked),
        link: link.map(|link| (link.url, context.timestamp(link.expires))),
        error: None,
        email: user.email,
    })
}

pub(super) async fn permit_user(context: &PageContext<'_>, id: &str) -> HandlerResult {
    let permissions = Some(permissions(&context.request.form())?);
    let update = UserUpdate { permissions, ..UserUpdate::default() };
    let (org, now) = (context.org(), context.request.now);
    let user = management::update_user(context.management, &context.actor, &org, id, update, now).await?;
    Ok(response::see_other(&format!("{}/users/{}?done=permitted", context.base, user.id)))
}

/// Shows the link in the answer itself: a reload makes another one.
pub(super) async fn create_link(context: &PageContext<'_>, id: &str) -> HandlerResult {
    let (org, now) = (context.org(), context.request.now);
    let link = management::create_link(context.management, &context.actor, &org, id, now).await?;
    let user = management::show_user(context.management, &context.actor, &org, id, now).await?;
    render(&user_page(context, user, Some(link)).await?)
}

pub(super) async fn remove_user(context: &PageContext<'_>, id: &str) -> HandlerResult {
    let (org, now) = (context.org(), context.request.now);
    if context.request.form().field("sure").is_empty() {
        management::check_people_access(context.management, &context.actor, &org, now).await?;
        let user = management::show_user(context.management, &context.actor, &org, id, now).await?;
        let error = Some("Tick the box to remove the person for good.".to_owned());
        return render_form(&UserPage { error, ..user_page(context, user, None).await? }, true);
    }
    management::remove_user(context.management, &context.actor, &org, id, now).await?;
    Ok(response::see_other(&format!("{}/users?done=removed", context.base)))
}

fn choices(offered: &[Permission], is_ticked: impl Fn(&str) -> bool) -> Vec<PermissionChoice> {
    let choice = |permission: &Permission| PermissionChoice {
        name: permission.to_string(),
        is_ticked: is_ticked(permission.as_str()),
    };
    offered.iter().map(choice).collect()
}

/// The ticked permissions. The page offers valid ones only.
fn permissions(form: &Form) -> Result<Vec<Permission>, ManagementError> {
    let ticked: Result<Vec<Permission>, _> = form.fields("permission").map(str::parse).collect();
    ticked.map_err(|_| ManagementError::InvalidBody("`permission` is not a permission".to_owned()))
}
