//! The form that changes the policy of a key, and disabling and enabling it.

use super::policy_form::PolicyInput;
use super::{HandlerResult, PageContext, render_form};
use crate::dashboard::error::DashboardError;
use crate::dashboard::pages::{
    DisabledFact, Expiry, NavEntry, PermissionChoice, PolicyFacts, PolicyFields, PolicyPage, format_count,
};
use crate::dashboard::response;
use crate::management::{Key, KeyUpdate, ManagementError, User};
use domain::key::KeyId;
use domain::key::policy::{DisabledBy, KeyPolicy};
use domain::problem::sentence;

impl PageContext<'_> {
    pub(super) async fn show_key_policy(&self, id: &str) -> HandlerResult {
        let (key, owner) = self.unrevoked_key_and_owner(id).await?;
        let fields = policy_fields(&key.policy, &owner);
        let before = key.policy.clone();
        self.policy_form(&key, &before, fields, None).await
    }

    async fn policy_form(
        &self,
        key: &Key,
        before: &KeyPolicy,
        fields: PolicyFields,
        error: Option<String>,
    ) -> HandlerResult {
        let present = key.policy.expires.map_or_else(|| "never".to_owned(), |time| self.timestamp(time).exact);
        let page = PolicyPage {
            layout: self.layout(NavEntry::Keys).await?,
            id: key.id.to_string(),
            name: key.name.clone(),
            owner: key.email.clone(),
            narrows_only: !self.user.is_admin(),
            before: serde_json::to_string(before).map_err(|_| DashboardError::Internal)?,
            policy: PolicyFields { present_expiry: Some(present), ..fields },
            error,
        };
        let has_error = !page.errors().is_empty();
        render_form(&page, has_error)
    }

    pub(super) async fn set_key_policy(&self, id: &str) -> HandlerResult {
        let (key, _) = self.unrevoked_key_and_owner(id).await?;
        let form = self.request.form();
        // A form without it shows the key as it is now.
        let before = serde_json::from_str(form.field("before")).unwrap_or_else(|_| key.policy.clone());
        let mut input = PolicyInput::read(&form, &before, self.request.now);
        if input.has_error() {
            return self.policy_form(&key, &before, input.fields, None).await;
        }
        let update = KeyUpdate { policy: std::mem::take(&mut input.update), ..KeyUpdate::default() };
        match self.management.update_key(&self.actor, key.id, update, self.request.now).await {
            Ok(_) => Ok(response::see_other(&format!("{}/keys/{}?done=set", self.base, key.id))),
            Err(error @ ManagementError::Widened(_)) => {
                self.policy_form(&key, &before, input.fields, Some(sentence(&error.to_string()))).await
            }
            Err(error) => {
                input.take_error(error)?;
                self.policy_form(&key, &before, input.fields, None).await
            }
        }
    }

    pub(super) async fn disable_key(&self, id: &str) -> HandlerResult {
        let id = Self::key_id(id)?;
        self.management.disable_key(&self.actor, id, false, self.request.now).await?;
        Ok(self.see_key(id, "disabled"))
    }

    pub(super) async fn enable_key(&self, id: &str) -> HandlerResult {
        let id = Self::key_id(id)?;
        self.management.enable_key(&self.actor, id, self.request.now).await?;
        Ok(self.see_key(id, "enabled"))
    }

    fn see_key(&self, id: KeyId, done: &str) -> crate::dashboard::response::DashboardResponse {
        response::see_other(&format!("{}/keys/{id}?done={done}", self.base))
    }

    async fn unrevoked_key_and_owner(&self, id: &str) -> Result<(Key, User), DashboardError> {
        let explanation = self.management.explain_key(&self.actor, Self::key_id(id)?, self.request.now).await?;
        match explanation.key.revoked {
            Some(_) => Err(ManagementError::Revoked(explanation.key.id).into()),
            None => Ok((explanation.key, explanation.user)),
        }
    }

    /// The policy as the page of the key shows it.
    pub(super) fn policy_facts(&self, policy: &KeyPolicy) -> PolicyFacts {
        PolicyFacts {
            has_own_permissions: policy.permissions.is_some(),
            expires: policy.expires.map(|time| self.timestamp(time)),
            networks: policy.networks.iter().map(ToString::to_string).collect(),
            concurrent: policy.concurrent.map(|number| format_count(number.into())),
            tags: policy.tags.iter().map(|(name, value)| format!("{name}={value}")).collect(),
            disabled: policy.disabled.map(|disabled| DisabledFact {
                since: self.timestamp(disabled.at),
                by: cause_text(disabled.by),
                can_enable: !disabled.by.is_of_operator(),
            }),
        }
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
