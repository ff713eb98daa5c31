//! Policy of a key in words, the same in tables, explanations and plans: only what is set.

use std::collections::BTreeMap;
use std::fmt::Display;

use domain::clock::Micros;
use domain::identity::Permission;
use domain::key::policy::{Disabled, KeyPolicy, Network};

/// The names and values of what a policy sets, under the names of the flags.
pub fn policy_fields(policy: &KeyPolicy) -> Vec<(&'static str, String)> {
    let KeyPolicy { permissions, expires, networks, concurrent, disabled, enabled: _, tags } = policy;
    let fields = [
        ("permissions", permissions.as_deref().map(permissions_text)),
        ("expires", expires.map(seconds)),
        ("networks", (!networks.is_empty()).then(|| networks_text(networks))),
        ("concurrent", concurrent.map(|concurrent| concurrent.to_string())),
        ("disabled", disabled.map(disabled_text)),
        ("tags", (!tags.is_empty()).then(|| tags_text(tags))),
    ];
    fields.into_iter().filter_map(|(name, value)| Some((name, value?))).collect()
}

/// A policy in one line: `expires 2027-01-31T00:00:00Z; networks 10.0.0.0/8`; none of an empty one.
pub fn policy_line(policy: &KeyPolicy) -> Option<String> {
    let fields: Vec<String> =
        policy_fields(policy).into_iter().map(|(name, value)| format!("{name} {value}")).collect();
    (!fields.is_empty()).then(|| fields.join("; "))
}

/// `queries:read,queries:write`, or `none`.
pub fn permissions_text(permissions: &[Permission]) -> String {
    listed(permissions)
}

/// `10.0.0.0/8,2001:db8::/32`, or `any`.
pub fn networks_text(networks: &[Network]) -> String {
    if networks.is_empty() { "any".to_owned() } else { listed(networks) }
}

/// `env=prod,team=billing`, or `none`.
pub fn tags_text(tags: &BTreeMap<String, String>) -> String {
    listed(&pairs(tags))
}

/// `NAME=VALUE` of each.
pub fn pairs(values: &BTreeMap<String, impl Display>) -> Vec<String> {
    values.iter().map(|(name, value)| format!("{name}={value}")).collect()
}

/// `2026-11-25T21:00:00Z by the operator`.
fn disabled_text(disabled: Disabled) -> String {
    format!("{} {}", seconds(disabled.at), disabled.by.text())
}

/// An expiry that a key has, or `none`.
pub fn expires_text(expires: Option<Micros>) -> String {
    expires.map_or_else(|| "none".to_owned(), seconds)
}

/// An RFC 3339 time to the second: `2026-11-20T21:08:00Z`.
pub fn seconds(time: impl Display) -> String {
    let time = time.to_string();
    match time.split_once('.') {
        Some((seconds, _)) => format!("{seconds}Z"),
        None => time,
    }
}

fn listed(items: &[impl ToString]) -> String {
    let joined = items.iter().map(ToString::to_string).collect::<Vec<_>>().join(",");
    if joined.is_empty() { "none".to_owned() } else { joined }
}

#[cfg(test)]
mod tests {
    use domain::key::policy::DisabledBy;

    use super::*;

    #[test]
    fn line_has_what_is_set() {
        assert_eq!(policy_line(&KeyPolicy::default()), None);
        let policy = KeyPolicy {
            permissions: Some(Vec::new()),
            expires: Some(Micros(1_801_353_600_000_000)),
            networks: vec!["10.0.0.0/8".parse().unwrap(), "::1".parse().unwrap()],
            concurrent: Some(3),
            disabled: Some(Disabled { at: Micros(1_700_000_000_000_042), by: DisabledBy::Leak }),
            enabled: None,
            tags: [("team".to_owned(), "billing".to_owned())].into(),
        };
        let line = "permissions none; expires 2027-01-31T00:00:00Z; networks 10.0.0.0/8,::1/128; concurrent 3; \
                    disabled 2023-11-14T22:13:20Z because it has leaked; tags team=billing";
        assert_eq!(policy_line(&policy).unwrap(), line);
    }
}
