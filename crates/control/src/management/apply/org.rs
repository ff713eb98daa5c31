//! Organizations of a document, made what it says.

use std::time::Duration;

use super::caller::{Caller, found};
use super::document::OrgSpec;
use super::step::{Fields, Named, PlanStep, plan_text};
use crate::management::{ManagementError, Org, OrgUpdate, create_org, show_org, update_org};
use domain::names;
use platform::settings::WithUnit;
use state::LOOK_TAKEN;

/// The fields of every new organization.
const NEW: [(&str, &str); 7] = [
    ("concurrent", "configured"),
    ("plan", "none"),
    ("quota", "none"),
    ("suspended", "false"),
    ("max_expiry", "none"),
    ("default_expiry", "none"),
    ("unused_keys", "configured"),
];

/// Makes an organization what the document says.
pub(super) async fn make(by: Caller<'_>, spec: &OrgSpec, of: Named) -> Result<Option<PlanStep>, ManagementError> {
    let Caller { management, actor, now } = by;
    let before = found(show_org(management, actor, &spec.name, now).await)?;
    let org = match &before {
        Some(org) => org.clone(),
        None => match create_org(management, actor, &spec.name, None, now).await {
            Err(ManagementError::Taken(LOOK_TAKEN)) => return Err(looks_the_same(by, &spec.name).await?),
            created => created?,
        },
    };
    let policy = spec.policy.into_patch().apply_to(org.policy)? != org.policy;
    let update = OrgUpdate {
        suspended: spec.suspended.filter(|wanted| *wanted != org.suspended),
        concurrent: spec.concurrent.filter(|wanted| *wanted != org.concurrent),
        plan: spec.plan.clone().filter(|wanted| *wanted != org.plan),
        quota: spec.quota.filter(|wanted| *wanted != org.quota),
        policy: policy.then_some(Some(spec.policy)),
    };
    let after = if update == OrgUpdate::default() {
        org
    } else {
        update_org(management, actor, &spec.name, update, now).await?
    };
    Ok(match before {
        None => Some(PlanStep::create(of, &NEW, fields(&after))),
        Some(before) => PlanStep::change(of, fields(&before), fields(&after)),
    })
}

/// The conflict of a name with that of another organization. Only callers of all organizations create any.
async fn looks_the_same(by: Caller<'_>, name: &str) -> Result<ManagementError, ManagementError> {
    let looks = names::looks(name);
    let orgs = by.management.state.orgs().await?;
    let other = orgs.into_iter().find(|org| names::looks(&org.name).iter().any(|look| looks.contains(look)));
    let other = other.map(|org| org.name).unwrap_or_default();
    Ok(ManagementError::ApplyConflict(format!(
        "looks the same as the organization {other}; a name is one organization's"
    )))
}

fn fields(org: &Org) -> Fields {
    let expiry = |expiry: Option<Duration>| {
        expiry.map_or_else(|| "none".to_owned(), |expiry| WithUnit::Duration(expiry).to_string())
    };
    let or_configured = |value: Option<String>| value.unwrap_or_else(|| "configured".to_owned());
    vec![
        ("concurrent", or_configured(org.concurrent.map(|concurrent| concurrent.to_string()))),
        ("plan", plan_text(org.plan.as_ref())),
        ("quota", plan_text(org.quota.as_ref())),
        ("suspended", org.suspended.to_string()),
        ("max_expiry", expiry(org.policy.max_expiry)),
        ("default_expiry", expiry(org.policy.default_expiry)),
        ("unused_keys", or_configured(org.policy.unused_keys.map(|unused| unused.to_string()))),
    ]
}
