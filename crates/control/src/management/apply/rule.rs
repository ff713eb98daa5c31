//! Federation rules of a document, made what it says.
//!
//! A rule is not changed in place: one that differs is removed, and created as the document says. No token is exchanged
//! by it in between; its keys stay.

use super::caller::{Caller, found};
use super::document::{OrgSpec, RuleSpec};
use super::step::{Action, Fields, Named, PlanStep};
use crate::management::policy_text::{pairs, permissions_text, tags_text};
use crate::management::{
    FEDERATED_KEY_LIFETIME, FederationRule, ManagementError, NewFederationRule, create_federation_rule,
    remove_federation_rule, show_federation_rule,
};
use platform::settings::WithUnit;

/// The fields of every new rule that has only what it must have.
const NEW: [(&str, &str); 4] = [("audiences", "none"), ("claims", "none"), ("permissions", "none"), ("tags", "none")];

/// Makes a rule what the document says.
pub(super) async fn make(
    by: Caller<'_>,
    org: &OrgSpec,
    spec: &RuleSpec,
    of: Named,
) -> Result<Option<PlanStep>, ManagementError> {
    let Caller { management, actor, now } = by;
    let present = found(show_federation_rule(management, actor, &org.name, &spec.name, now).await)?;
    if spec.removed {
        if present.is_none() {
            return Ok(None);
        }
        remove_federation_rule(management, actor, &org.name, &spec.name, now).await?;
        return Ok(Some(PlanStep::new(Action::Withdraw, of)));
    }
    let mut wanted = spec.to_rule();
    let Some(present) = present else {
        let after = fields(&wanted);
        create_federation_rule(management, actor, &org.name, wanted, now).await?;
        return Ok(Some(PlanStep::create(of, &NEW, after)));
    };
    let before = as_in_document(present);
    wanted.max = wanted.max.or(before.max);
    wanted.audiences = spec.audiences.clone().unwrap_or_else(|| before.audiences.clone());
    wanted.tags = spec.tags.clone().unwrap_or_else(|| before.tags.clone());
    let step = PlanStep::change(of, fields(&before), fields(&wanted));
    if step.is_some() {
        remove_federation_rule(management, actor, &org.name, &spec.name, now).await?;
        create_federation_rule(management, actor, &org.name, wanted, now).await?;
    }
    Ok(step)
}

/// The rule as a document would have it.
fn as_in_document(rule: FederationRule) -> NewFederationRule {
    let FederationRule { name, user, service, issuer, audience, audiences, claims, permissions, max, tags, .. } = rule;
    let user = service.unwrap_or_else(|| user.to_string());
    NewFederationRule { name, user, issuer, audience, audiences, claims, permissions, max: Some(max), tags }
}

fn fields(rule: &NewFederationRule) -> Fields {
    let or_none = |texts: Vec<String>| if texts.is_empty() { "none".to_owned() } else { texts.join(" ") };
    let max = rule.max.unwrap_or(FEDERATED_KEY_LIFETIME);
    vec![
        ("user", rule.user.clone()),
        ("issuer", rule.issuer.clone()),
        ("audience", rule.audience.clone()),
        ("audiences", or_none(rule.audiences.clone())),
        ("claims", pairs(&rule.claims).join(" ")),
        ("permissions", permissions_text(&rule.permissions)),
        ("max", WithUnit::Duration(max).to_string()),
        ("tags", tags_text(&rule.tags)),
    ]
}
