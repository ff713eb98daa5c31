//! Policy of an organization: bounds of its new keys, set by the operator.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::given;
use state::{OrgPolicyPatch, UnusedKeys};

/// New values of the policy of an organization. Absent values stay as they are; `null` takes a value away.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OrgPolicyUpdate {
    /// Longest time to the expiry of a key; `Some(None)`: keys need not expire.
    #[serde(default, with = "given::duration", skip_serializing_if = "Option::is_none")]
    pub max_expiry: Option<Option<Duration>>,
    /// Time to the expiry of a key where none is asked for; `Some(None)`: the longest.
    #[serde(default, with = "given::duration", skip_serializing_if = "Option::is_none")]
    pub default_expiry: Option<Option<Duration>>,
    /// Treatment of keys that are not used; `Some(None)`: the configured one.
    #[serde(default, deserialize_with = "given::deserialize", skip_serializing_if = "Option::is_none")]
    pub unused_keys: Option<Option<UnusedKeys>>,
}

impl OrgPolicyUpdate {
    /// The change of the record.
    pub fn into_patch(self) -> OrgPolicyPatch {
        let Self { max_expiry, default_expiry, unused_keys } = self;
        OrgPolicyPatch { max_expiry, default_expiry, unused_keys }
    }
}
