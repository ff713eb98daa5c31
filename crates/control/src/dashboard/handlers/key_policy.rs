//! The form that changes the policy of a key, and disabling and enabling it.

use super::policy_form::{NAME_ERROR, PolicyInput};
use super::{HandlerResult, PageContext, key_id, render_form};
use crate::dashboard::pages::{
    DisabledFact, Expiry, NavEntry, PermissionChoice, PolicyFacts, PolicyFields, PolicyPage, RateField, format_count,
    format_duration,
};
use crate::dashboard::response;
use crate::management;
use crate::management::{Key, KeyUpdate, LimitPatch, ManagementError, User};
use crate::request::Form;
use domain::key::KeyId;
use domain::key::policy::{DisabledBy, KeyPolicy};
use domain::problem::sentence;

pub(super) async fn show_key_policy(context: &PageContext<'_>, id: &str) -> HandlerResult {
    let (key, owner) = unrevoked_key_and_owner(context, id).await?;
    let fields = policy_fields(&key.policy, &owner);
    let before = key.policy.clone();
    policy_form(context, &key, &before, Entered::of(&key), fields, None).await
}

async fn policy_form(
    context: &PageContext<'_>,
    key: &Key,
    before: &KeyPolicy,
    entered: Entered,
    fields: PolicyFields,
    error: Option<String>,
) -> HandlerResult {
    let present = key.policy.expires.map_or_else(|| "never".to_owned(), |time| context.timestamp(time).exact);
    let Entered { name: entered_name, name_error, requests, requests_error } = entered;
    let rate = context.user.is_admin().then(|| RateField {
        present: key.limits.requests,
        per: format_duration(u64::try_from(key.limits.per.as_micros()).unwrap_or(u64::MAX)),
        entered: requests,
        error: requests_error,
    });
    let page = PolicyPage {
        layout: context.layout(NavEntry::Keys).await?,
        id: key.id.to_string(),
        name: key.name.clone(),
        entered_name,
        name_error,
        rate,
        owner: key.email.clone(),
        narrows_only: !context.user.is_admin(),
        before: serde_json::to_string(before).map_err(|_| ManagementError::Internal)?,
        policy: PolicyFields { present_expiry: Some(present), ..fields },
        error,
    };
    let has_error = !page.errors().is_empty();
    render_form(&page, has_error)
}

pub(super) async fn set_key_policy(context: &PageContext<'_>, id: &str) -> HandlerResult {
    let (key, _) = unrevoked_key_and_owner(context, id).await?;
    let form = context.request.form();
    // A form without it shows the key as it is now.
    let before = serde_json::from_str(form.field("before")).unwrap_or_else(|_| key.policy.clone());
    let mut input = PolicyInput::read(&form, &before, context.request.now);
    let mut entered = Entered {
        name: form.field("name").to_owned(),
        requests: form.field("requests").to_owned(),
        ..Entered::default()
    };
    let limits = lower_limits(&form, &key).unwrap_or_else(|error| {
        entered.requests_error = Some(error);
        None
    });
    if input.has_error() || entered.requests_error.is_some() {
        return policy_form(context, &key, &before, entered, input.fields, None).await;
    }
    let is_renamed = form.has_field("name") && entered.name != form.field("before-name");
    let name = is_renamed.then(|| entered.name.clone());
    let policy = std::mem::take(&mut input.update);
    let update = KeyUpdate { name, policy, limits: limits.map(Some), ..KeyUpdate::default() };
    let mut general = None;
    match management::update_key(context.management, &context.actor, key.id, update, context.request.now).await {
        Ok(_) => return Ok(response::see_other(&format!("{}/keys/{}?done=set", context.base, key.id))),
        Err(error @ ManagementError::Widened(_)) => general = Some(sentence(&error.to_string())),
        Err(ManagementError::InvalidName(_)) => entered.name_error = Some(NAME_ERROR.to_owned()),
        Err(ManagementError::LimitsRaised(_)) => {
            let present = format_count(key.limits.requests.into());
            entered.requests_error = Some(format!("The limit is {present}. Enter {present} at most."));
        }
        Err(error) => input.take_error(error)?,
    }
    policy_form(context, &key, &before, entered, input.fields, general).await
}

/// The limits that a form asks for: fewer requests, and no more at once than these; `None` where they stay.
fn lower_limits(form: &Form, key: &Key) -> Result<Option<LimitPatch>, String> {
    let text = form.field("requests");
    if !form.has_field("requests") || text == form.field("before-requests") {
        return Ok(None);
    }
    let requests: u32 =
        text.parse().ok().filter(|number| *number > 0).ok_or("Enter a whole number of at least 1.".to_owned())?;
    let burst = Some(Some(requests.min(key.limits.burst)));
    Ok(Some(LimitPatch { requests: Some(Some(requests)), burst, per: None }))
}

/// Values that were entered beside the fields of the policy, with their errors.
#[derive(Default)]
struct Entered {
    name: String,
    name_error: Option<String>,
    requests: String,
    requests_error: Option<String>,
}

impl Entered {
    /// The values of a key.
    fn of(key: &Key) -> Self {
        Self { name: key.name.clone(), requests: key.limits.requests.to_string(), ..Self::default() }
    }
}

pub(super) async fn disable_key(context: &PageContext<'_>, id: &str) -> HandlerResult {
    let id = key_id(id)?;
    management::disable_key(context.management, &context.actor, id, false, context.request.now).await?;
    Ok(see_key(context, id))
}

pub(super) async fn enable_key(context: &PageContext<'_>, id: &str) -> HandlerResult {
    let id = key_id(id)?;
    management::enable_key(context.management, &context.actor, id, context.request.now).await?;
    Ok(see_key(context, id))
}

/// Redirects to the page of a key, which begins with the verdict: that says whether it is disabled.
fn see_key(context: &PageContext<'_>, id: KeyId) -> response::DashboardResponse {
    response::see_other(&format!("{}/keys/{id}", context.base))
}

async fn unrevoked_key_and_owner(context: &PageContext<'_>, id: &str) -> Result<(Key, User), ManagementError> {
    let explanation =
        management::explain_key(context.management, &context.actor, key_id(id)?, context.request.now).await?;
    match explanation.key.revoked {
        Some(_) => Err(ManagementError::Revoked(explanation.key.id)),
        None => Ok((explanation.key, explanation.user)),
    }
}

/// The policy as the page of the key shows it.
pub(super) fn policy_facts(context: &PageContext<'_>, policy: &KeyPolicy) -> PolicyFacts {
    PolicyFacts {
        has_own_permissions: policy.permissions.is_some(),
        expires: policy.expires.map(|time| context.timestamp(time)),
        networks: policy.networks.iter().map(ToString::to_string).collect(),
        concurrent: policy.concurrent.map(|number| format_count(number.into())),
        tags: policy.tags.iter().map(|(name, value)| format!("{name}={value}")).collect(),
        disabled: policy.disabled.map(|disabled| DisabledFact {
            since: context.timestamp(disabled.at),
            by: cause_text(disabled.by),
            can_enable: !disabled.by.is_of_operator(),
        }),
    }
}

/// The permissions of an owner to choose from, all of them ticked.
pub(super) fn permission_choices<'a>(names: impl IntoIterator<Item = &'a str>) -> Vec<PermissionChoice> {
    names.into_iter().map(|name| PermissionChoice { name: name.to_owned(), is_ticked: true }).collect()
}

/// The fields of the form that changes a policy: the permissions of the owner, and those of the key that the owner
/// does not have at present.
fn policy_fields(policy: &KeyPolicy, owner: &User) -> PolicyFields {
    let mut names: Vec<_> = owner.permissions.iter().chain(policy.permissions.iter().flatten()).collect();
    names.sort_unstable();
    names.dedup();
    let choice = |permission: &domain::identity::Permission| PermissionChoice {
        name: permission.to_string(),
        is_ticked: policy.allows_permission(permission),
    };
    let networks: Vec<String> = policy.networks.iter().map(ToString::to_string).collect();
    PolicyFields {
        permissions: names.into_iter().map(choice).collect(),
        expiry: Expiry::Keep,
        networks: networks.join("\n"),
        concurrent: policy.concurrent.map(|number| number.to_string()).unwrap_or_default(),
        tags: policy.tags.iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join("\n"),
        ..PolicyFields::default()
    }
}

fn cause_text(by: DisabledBy) -> &'static str {
    match by {
        DisabledBy::Person => "a person of the organization",
        DisabledBy::Operator => "the operator of this service",
        DisabledBy::Unused => "the sweep of unused keys",
        DisabledBy::Leak => "a report that the key has leaked",
    }
}
