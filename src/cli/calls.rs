//! Calls of the API that several commands make.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::call::Call;
use ::control::management::{KeyQuery, LimitUpdate, NewFederationRule, UserKind};
use domain::identity::Permission;
use domain::key::KeyId;
use platform::settings::WithUnit;

/// Segment of the paths of federation rules.
pub(super) const RULES: &str = "federation-rules";

/// The call that creates an organization.
pub(super) fn create_org(name: &str) -> Call {
    Call::post(&["orgs"]).with_body(&json!({ "name": name }))
}

/// The call that creates a person by an email address, or a service by a name.
pub(super) fn create_user(
    org: &str,
    handle: &str,
    kind: UserKind,
    responsible: Option<&str>,
    permissions: &[Permission],
) -> Call {
    Call::post(&["orgs", org, "users"]).with_body(&new_user(handle, kind, responsible, permissions))
}

/// The body of that call.
pub(super) fn new_user(handle: &str, kind: UserKind, responsible: Option<&str>, permissions: &[Permission]) -> Value {
    json!({ "email": handle, "kind": kind, "responsible": responsible, "permissions": permissions })
}

/// The call that patches a user.
pub(super) fn patch_user(org: &str, user: &str, patch: &Value) -> Call {
    Call::patch(&["orgs", org, "users", user], patch)
}

/// The call that lists the keys of an organization, by the fields that commands filter by.
pub(super) fn list_keys(org: &str, query: &KeyQuery) -> Call {
    Call::get(&["orgs", org, "keys"]).with_query(&key_filter(query))
}

/// The call that lists the same keys as CSV.
pub(super) fn list_keys_as_csv(org: &str, query: &KeyQuery) -> Call {
    Call::get(&["orgs", org, "keys.csv"]).with_query(&key_filter(query))
}

/// The filter and the order as parameters, without the fields that filter nothing: the API refuses unknown and empty
/// ones.
fn key_filter(query: &KeyQuery) -> Value {
    let mut parameters = json!(query);
    if let Value::Object(fields) = &mut parameters {
        fields.retain(|name, value| *value != "" && *value != false && name != "newest_first");
        if (query.sort, query.descending) != Default::default() {
            fields.insert("sort".to_owned(), query.sort.parameter(query.descending).into());
        }
    }
    parameters
}

/// The call that shows a key.
pub(super) fn show_key(key: KeyId) -> Call {
    Call::get(&["keys", &key.to_string()])
}

/// The call that revokes a key.
pub(super) fn revoke_key(key: KeyId) -> Call {
    Call::post(&["keys", &key.to_string(), "revoke"])
}

/// The call that enables a key.
pub(super) fn enable_key(key: KeyId) -> Call {
    Call::post(&["keys", &key.to_string(), "enable"])
}

/// The call that disables a key.
pub(super) fn disable_key(key: KeyId, leaked: bool) -> Call {
    Call::post(&["keys", &key.to_string(), "disable"]).with_body(&json!({ "leaked": leaked }))
}

/// The call that patches a key.
pub(super) fn patch_key(key: KeyId, patch: &Value) -> Call {
    Call::patch(&["keys", &key.to_string()], patch)
}

/// The call that gives a key limits of its own, or the configured ones. What is absent stays as it is, but for the
/// burst, which follows the requests.
pub(super) fn limit_key(key: KeyId, limits: Option<LimitUpdate>) -> Call {
    let limits = limits.map(|LimitUpdate { requests, per, burst }| {
        let members = [
            ("requests", json!(requests)),
            ("per", json!(per.map(|per| WithUnit::Duration(per).to_string()))),
            ("burst", json!(burst.or(requests))),
        ];
        members.into_iter().filter(|(_, value)| !value.is_null()).collect::<BTreeMap<_, _>>()
    });
    patch_key(key, &json!({ "limits": limits }))
}

/// The call that creates a rule.
pub(super) fn create_rule(org: &str, rule: &NewFederationRule) -> Call {
    Call::post(&["orgs", org, RULES]).with_body(rule)
}

/// The call that lists the rules of an organization.
pub(super) fn list_rules(org: &str) -> Call {
    Call::get(&["orgs", org, RULES])
}

/// The call that removes a rule.
pub(super) fn remove_rule(org: &str, name: &str) -> Call {
    Call::delete(&["orgs", org, RULES, name])
}
