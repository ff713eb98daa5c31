//! The form that creates a key.

use std::collections::BTreeSet;

use super::key_policy::permission_choices;
use super::policy_form::{NAME_ERROR, PolicyInput};
use super::{HandlerResult, PageContext, new_key, render_form};
use crate::dashboard::pages::{CreatePage, NavEntry, OwnerChoice, OwnerInput, PolicyFields};
use crate::management;
use crate::management::{ManagementError, NewKeyRequest, PolicyUpdate, SecretSource, User};
use domain::key::policy::KeyPolicy;
use domain::page::{PageLimit, PageQuery};

/// Users in the list of owners at most. In larger organizations the owner is typed.
const MAX_CHOICES: usize = 200;
/// Pages of users that are read for the list at most; some of the users may be removed.
const MAX_CHOICE_PAGES: usize = 5;

/// Values of the form, and the errors in them.
#[derive(Default)]
struct CreateInput<'a> {
    name: &'a str,
    owner: &'a str,
    /// `None`: as for a new form.
    policy: Option<PolicyFields>,
    name_error: Option<&'static str>,
    owner_error: Option<&'static str>,
}

pub(super) async fn show_create_key(context: &PageContext<'_>) -> HandlerResult {
    let owner = &context.user.user.id.to_string();
    create_form(context, CreateInput { owner, ..CreateInput::default() }).await
}

/// The form with these values, and with the errors in them.
async fn create_form(context: &PageContext<'_>, input: CreateInput<'_>) -> HandlerResult {
    let layout = context.layout(NavEntry::Keys).await?;
    let users = if context.user.is_admin() { owner_choices(context).await? } else { None };
    let policy = input.policy.unwrap_or_else(|| new_policy(context, users.as_deref().unwrap_or_default()));
    let page = CreatePage {
        layout,
        name: input.name.to_owned(),
        owner: owner_input(context, input.owner, users),
        policy,
        name_error: input.name_error.map(str::to_owned),
        owner_error: input.owner_error.map(str::to_owned),
    };
    let has_error = !page.errors().is_empty();
    render_form(&page, has_error)
}

/// The policy of a new key, which narrows nothing, with the permissions of the owners to choose from.
fn new_policy(context: &PageContext<'_>, owners: &[User]) -> PolicyFields {
    let of_owners = owners.iter().flat_map(|user| &user.permissions);
    let names: BTreeSet<&str> =
        context.user.user.permissions.iter().chain(of_owners).map(|permission| permission.as_str()).collect();
    PolicyFields { permissions: permission_choices(names), ..PolicyFields::default() }
}

/// The form's field for the owner, where there are these users to choose from. Only admins may choose another owner
/// than themselves.
fn owner_input(context: &PageContext<'_>, selected: &str, users: Option<Vec<User>>) -> OwnerInput {
    if !context.user.is_admin() {
        return OwnerInput::Fixed;
    }
    let Some(mut users) = users else {
        // The form was opened with the user's own id, or was sent with an address.
        let is_own = selected == context.user.user.id.to_string();
        return OwnerInput::Text(if is_own { &context.user.user.email } else { selected }.to_owned());
    };
    users.sort_by(|a, b| a.email.cmp(&b.email));
    let choice = |user: User| {
        let value = user.id.to_string();
        let label = if user.kind.is_person() { user.email } else { format!("{} (service)", user.email) };
        OwnerChoice { selected: value == selected, value, label }
    };
    OwnerInput::Select(users.into_iter().map(choice).collect())
}

/// The users to choose from; `None` when the organization has too many.
async fn owner_choices(context: &PageContext<'_>) -> Result<Option<Vec<User>>, ManagementError> {
    let mut users = Vec::new();
    let mut query = PageQuery::first(PageLimit::MAX);
    for _ in 0..MAX_CHOICE_PAGES {
        let page =
            management::list_users(context.management, &context.actor, &context.org(), &query, context.request.now)
                .await?;
        users.extend(page.items.into_iter().filter(|user| user.removed.is_none()));
        query.cursor = page.next;
        if query.cursor.is_none() {
            return Ok(Some(users).filter(|users| users.len() <= MAX_CHOICES));
        }
    }
    Ok(None)
}

pub(super) async fn create_key(context: &PageContext<'_>) -> HandlerResult {
    let form = context.request.form();
    let own_id = context.user.user.id.to_string();
    let name = form.field("name");
    let owner = form.field("owner");
    // A member's form has no field for the owner.
    let owner = if owner.is_empty() { &own_id } else { owner };
    let mut policy = PolicyInput::read(&form, &KeyPolicy::default(), context.request.now);
    let mut input = CreateInput { name, owner, ..CreateInput::default() };
    if policy.has_error() {
        return create_form(context, CreateInput { policy: Some(policy.fields), ..input }).await;
    }
    if let Some(error) = permissions_beyond(context, &policy.update, owner).await? {
        policy.fields.errors.permissions = Some(error);
        return create_form(context, CreateInput { policy: Some(policy.fields), ..input }).await;
    }
    let update = std::mem::take(&mut policy.update);
    let sealer = management::key_sealer(context.management, context.user).await?;
    let request = NewKeyRequest { user: owner, name, policy: update, plan: None };
    let secret = SecretSource::Generated;
    match management::create_key(
        context.management,
        &context.actor,
        &context.org(),
        request,
        secret,
        context.request.now,
    )
    .await
    {
        Ok(created) => return new_key::lead_to_new_key(context, &sealer, &created),
        Err(ManagementError::InvalidName(_)) => {
            input.name_error = Some(NAME_ERROR);
        }
        Err(ManagementError::NoUser(_)) => {
            input.owner_error = Some("This organization has no user with this address or name.");
        }
        Err(error) => policy.take_error(error)?,
    }
    create_form(context, CreateInput { policy: Some(policy.fields), ..input }).await
}

/// The error of permissions that the owner does not have, all of them: an admin chooses among those of all owners.
/// The operation judges an owner who is not found.
async fn permissions_beyond(
    context: &PageContext<'_>,
    update: &PolicyUpdate,
    owner: &str,
) -> Result<Option<String>, ManagementError> {
    let Some(Some(permissions)) = &update.permissions else { return Ok(None) };
    if !context.user.is_admin() {
        return Ok(None);
    }
    let owner =
        match management::show_user(context.management, &context.actor, &context.org(), owner, context.request.now)
            .await
        {
            Err(ManagementError::NoUser(_)) => return Ok(None),
            owner => owner?,
        };
    let beyond = permissions.iter().filter(|permission| !owner.permissions.contains(permission));
    let beyond = beyond.map(|permission| permission.as_str()).collect::<Vec<_>>().join(", ");
    Ok((!beyond.is_empty()).then(|| format!("{} does not have {beyond}. Untick what is missing.", owner.email)))
}
