//! Fields of the records, as they are written. `record_codec` decodes them.

use crate::bucket;
use crate::redis::record_names::hex;
use crate::{Key, Org, Session, User};
use domain::budget::OwnBudget;
use domain::identity::{Permission, Voucher};
use domain::key::KeyDigest;
use domain::plan_name::PlanName;
use domain::quota::Quota;

/// Field of a user whom the operator has suspended.
pub(super) const SUSPENDED_BY: &str = "suspended_by";
/// Its value.
pub(super) const OPERATOR: &str = "operator";

/// Fields of an organization's record, but for its live part.
pub fn org_fields(org: &Org) -> Vec<(&'static str, String)> {
    let mut fields = vec![
        ("id", org.id.to_string()),
        ("tag", org.tag.as_str().to_owned()),
        ("name", org.name.clone()),
        ("created", org.created.0.to_string()),
        ("suspended", u8::from(org.suspended).to_string()),
    ];
    fields.extend(org.concurrent.map(|concurrent| ("concurrent", concurrent.to_string())));
    fields.extend(org.plan.as_ref().map(plan_field));
    fields.extend(org.budget.map(budget_field));
    fields.extend(org.policy.to_record().map(|policy| ("policy", policy)));
    fields
}

/// Fields of a user's record.
pub fn user_fields(user: &User) -> Vec<(&'static str, String)> {
    let mut fields = vec![
        ("id", user.id.to_string()),
        ("org", user.org.to_string()),
        ("email", user.email.clone()),
        ("permissions", joined(&user.permissions)),
        ("created", user.created.0.to_string()),
    ];
    fields.extend(user.removed.map(|at| ("removed", at.0.to_string())));
    fields.extend(user.withdrawn.map(|at| ("withdrawn", at.0.to_string())));
    fields.extend(user.suspended.map(|at| ("suspended", at.0.to_string())));
    fields.extend(user.suspended_by_operator.then(|| (SUSPENDED_BY, OPERATOR.to_owned())));
    fields.extend(user.responsible.map(|user| ("responsible", user.to_string())));
    fields.extend(user.plan.as_ref().map(plan_field));
    fields.extend(user.budget.map(budget_field));
    fields.extend(user.vouched_by.iter().flat_map(voucher_fields));
    fields
}

/// Fields of the provider that vouches for a user.
pub(super) fn voucher_fields(voucher: &Voucher) -> [(&'static str, String); 2] {
    [("provider", voucher.provider.clone()), ("person", voucher.person.to_string())]
}

/// Fields of a key's record, but for its live part.
pub fn key_fields(key: &Key, digest: &KeyDigest) -> Vec<(&'static str, String)> {
    let mut fields = vec![
        ("id", key.id.as_str().to_owned()),
        ("org", key.org.to_string()),
        ("user", key.user.to_string()),
        ("name", key.name.clone()),
        ("imported", u8::from(key.imported).to_string()),
        ("session_quota_key", u8::from(key.session_quota_key).to_string()),
        ("created", key.created.0.to_string()),
        ("digest", hex(digest.as_bytes())),
    ];
    let times = [("rotated", key.rotated), ("previous_until", key.previous_until), ("revoked", key.revoked)];
    fields.extend(times.into_iter().filter_map(|(name, at)| Some((name, at?.0.to_string()))));
    fields.extend(key.quota.into_iter().flat_map(quota_fields));
    fields.extend(key.plan.as_ref().map(plan_field));
    fields.extend(key.budget.map(budget_field));
    fields.extend(key.policy.as_deref().map(|policy| ("policy", policy.to_json())));
    fields
}

/// Field of the budget that a record was given for itself.
fn budget_field(budget: OwnBudget) -> (&'static str, String) {
    ("budget", budget.to_string())
}

/// Field of the plan that a record was given.
fn plan_field(plan: &PlanName) -> (&'static str, String) {
    ("plan", plan.to_string())
}

/// Fields of a session's record.
pub(super) fn session_fields(session: &Session) -> Vec<(&'static str, String)> {
    let record = serde_json::to_string(session).expect("a session is text, numbers and lists of them");
    vec![
        ("id", session.id.to_string()),
        ("record", record),
        ("chosen", session.chosen.to_string()),
        ("seen", session.seen.0.to_string()),
    ]
}

/// Fields of a key's own quota.
pub(super) fn quota_fields(quota: Quota) -> [(&'static str, String); 3] {
    let Quota { requests, per, burst, strict: _ } = quota;
    [("requests", requests.to_string()), ("per", per.as_secs().to_string()), ("burst", burst.to_string())]
}

/// A quota as the scripts compute with it.
pub(super) fn quota_numbers(quota: Quota) -> serde_json::Value {
    let capacity = bucket::capacity(quota);
    serde_json::json!({ "requests": quota.inflow(), "per": quota.per_micros(), "capacity": capacity })
}

/// Permissions as they are stored: separated by commas.
pub(crate) fn joined(permissions: &[Permission]) -> String {
    permissions.iter().map(Permission::as_str).collect::<Vec<_>>().join(",")
}
