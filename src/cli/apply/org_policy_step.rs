//! The policy of an organization in the plan of `keygate apply`.

use std::time::Duration;

use serde_json::{Value, json};

use super::document::OrgSpec;
use super::step::{FieldChange, Step};
use crate::cli::call::Call;
use ::control::management::Org;
use platform::settings::WithUnit;
use state::{InvalidPolicy, OrgPolicy};

/// The policy that an organization has when the file is applied.
///
/// # Errors
/// It would not be valid, which is a conflict of the organization.
pub(super) fn wanted(spec: &OrgSpec, org: Option<&Org>) -> Result<OrgPolicy, InvalidPolicy> {
    spec.policy.into_patch().apply_to(org.map(|org| org.policy).unwrap_or_default())
}

/// Adds what makes the policy of an organization what the file says.
pub(super) fn plan(step: &mut Step, spec: &OrgSpec, org: Option<&Org>) {
    let present = org.map(|org| org.policy).unwrap_or_default();
    let wanted = match wanted(spec, org) {
        Ok(wanted) => wanted,
        // Each value by itself was checked with the file.
        Err(error) => return step.conflict(&format!("with the policy that it has, {error}")),
    };
    if wanted == present {
        return;
    }
    let changed = fields(present).into_iter().zip(fields(wanted)).filter(|(old, new)| old != new);
    step.changes.extend(changed.map(|((field, old), (_, new))| FieldChange { field, old: org.map(|_| old), new }));
    step.calls.push(patch_org(spec, json!({ "policy": spec.policy })));
}

/// The call that patches an organization.
pub(super) fn patch_org(org: &OrgSpec, patch: Value) -> Call {
    Call::patch(&["orgs", &org.name], &patch)
}

fn fields(policy: OrgPolicy) -> [(&'static str, String); 3] {
    let expiry = |expiry: Option<Duration>| {
        expiry.map_or_else(|| "none".to_owned(), |expiry| WithUnit::Duration(expiry).to_string())
    };
    let unused = policy.unused_keys.map_or_else(|| "configured".to_owned(), |unused| unused.to_string());
    [
        ("max_expiry", expiry(policy.max_expiry)),
        ("default_expiry", expiry(policy.default_expiry)),
        ("unused_keys", unused),
    ]
}
