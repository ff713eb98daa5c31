//! The document of `keygate apply`: what organizations, users, permissions, keys and limits are to be.
//!
//! - Unknown fields are errors, and so are records that are in it twice, and every value that an operation would refuse
//!   (`flaws`).
//! - A field that is absent is left as it is. `null` where a limit is expected means the configured one,
//!   and `null` for a plan or a quota means none.

#![allow(missing_docs, reason = "docs/backup.md says what each field means")]

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::management::expiry::FixedExpiry;
use crate::management::{LimitUpdate, NewFederationRule, OrgPolicyUpdate, duration_text, given};
use domain::budget::OwnBudget;
use domain::identity::Permission;
use domain::key::KeyId;
use domain::key::policy::Network;
use domain::names;
use domain::plan_name::PlanName;
use state::ClaimPattern;

/// A whole file.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Document {
    #[serde(default)]
    pub organizations: Vec<OrgSpec>,
}

/// An organization, named by its name.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OrgSpec {
    pub name: String,
    pub suspended: Option<bool>,
    #[serde(default, deserialize_with = "given::deserialize", skip_serializing_if = "Option::is_none")]
    pub concurrent: Option<Option<u32>>,
    #[serde(default, deserialize_with = "given::deserialize", skip_serializing_if = "Option::is_none")]
    pub plan: Option<Option<PlanName>>,
    #[serde(default, deserialize_with = "given::deserialize", skip_serializing_if = "Option::is_none")]
    pub quota: Option<Option<OwnBudget>>,
    #[serde(default)]
    pub policy: OrgPolicyUpdate,
    #[serde(default)]
    pub users: Vec<UserSpec>,
    #[serde(default)]
    pub federation_rules: Vec<RuleSpec>,
    #[serde(default)]
    pub keys: Vec<KeySpec>,
}

/// A user: a person, named by the email address, or a service, named by its name.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct UserSpec {
    pub email: Option<String>,
    pub service: Option<String>,
    /// Email address of the person who is responsible for a service.
    pub responsible: Option<String>,
    pub permissions: Option<Vec<Permission>>,
    pub suspended: Option<bool>,
    #[serde(default, deserialize_with = "given::deserialize", skip_serializing_if = "Option::is_none")]
    pub plan: Option<Option<PlanName>>,
    #[serde(default, deserialize_with = "given::deserialize", skip_serializing_if = "Option::is_none")]
    pub quota: Option<Option<OwnBudget>>,
    #[serde(default)]
    pub removed: bool,
}

/// A federation rule, named by its name; all of it but `audiences`, `max` and `tags`, unless it is removed.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RuleSpec {
    pub name: String,
    /// Name of the service whose keys it makes.
    #[serde(default)]
    pub user: String,
    #[serde(default)]
    pub issuer: String,
    #[serde(default)]
    pub audience: String,
    pub audiences: Option<Vec<String>>,
    #[serde(default)]
    pub claims: BTreeMap<String, ClaimPattern>,
    #[serde(default)]
    pub permissions: Vec<Permission>,
    #[serde(default, with = "duration_text::option")]
    pub max: Option<Duration>,
    pub tags: Option<BTreeMap<String, String>>,
    #[serde(default)]
    pub removed: bool,
}

/// A key, named by the SHA-256 of its secret or, when it exists, by its id. One that was made offline has both.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KeySpec {
    pub id: Option<KeyId>,
    pub sha256: Option<String>,
    pub user: Option<String>,
    pub name: Option<String>,
    #[serde(default, deserialize_with = "given::deserialize", skip_serializing_if = "Option::is_none")]
    pub limits: Option<Option<LimitSpec>>,
    #[serde(default, deserialize_with = "given::deserialize", skip_serializing_if = "Option::is_none")]
    pub plan: Option<Option<PlanName>>,
    #[serde(default, deserialize_with = "given::deserialize", skip_serializing_if = "Option::is_none")]
    pub quota: Option<Option<OwnBudget>>,
    /// This and the others of the policy: absent as it is, `null` cleared, else the whole value.
    #[serde(default, deserialize_with = "given::deserialize", skip_serializing_if = "Option::is_none")]
    pub permissions: Option<Option<Vec<Permission>>>,
    #[serde(default, deserialize_with = "given::deserialize", skip_serializing_if = "Option::is_none")]
    pub expires: Option<Option<FixedExpiry>>,
    #[serde(default, deserialize_with = "given::deserialize", skip_serializing_if = "Option::is_none")]
    pub networks: Option<Option<Vec<Network>>>,
    #[serde(default, deserialize_with = "given::deserialize", skip_serializing_if = "Option::is_none")]
    pub concurrent: Option<Option<u32>>,
    #[serde(default, deserialize_with = "given::deserialize", skip_serializing_if = "Option::is_none")]
    pub tags: Option<Option<BTreeMap<String, String>>>,
    pub disabled: Option<bool>,
    #[serde(default)]
    pub revoked: bool,
}

/// Limits of a key.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LimitSpec {
    pub requests: u32,
    #[serde(with = "duration_text")]
    pub per: Duration,
    /// Without one, as many as `requests`.
    pub burst: Option<u32>,
}

impl Document {
    /// Writes names and handles as the operations do, so that they are compared with those of the state.
    pub fn normalize(&mut self) {
        for org in &mut self.organizations {
            for name in org.keys.iter_mut().filter_map(|key| key.name.as_mut()).chain([&mut org.name]) {
                *name = name.trim().to_owned();
            }
            let of_users =
                org.users.iter_mut().flat_map(|user| [&mut user.email, &mut user.service, &mut user.responsible]);
            let of_keys = org.keys.iter_mut().map(|key| &mut key.user);
            let of_rules = org.federation_rules.iter_mut().map(|rule| &mut rule.user);
            for handle in of_users.chain(of_keys).flatten().chain(of_rules) {
                *handle = names::normalize_handle(handle);
            }
        }
    }
}

impl OrgSpec {
    /// The organization without its users, rules and keys.
    pub fn alone(&self) -> Self {
        let Self { name, suspended, concurrent, plan, quota, policy, .. } = self;
        let (name, plan, policy) = (name.clone(), plan.clone(), *policy);
        Self { name, suspended: *suspended, concurrent: *concurrent, plan, quota: *quota, policy, ..Self::default() }
    }

    /// The number of records, the organization among them.
    pub(super) fn count(&self) -> usize {
        1 + self.users.len() + self.federation_rules.len() + self.keys.len()
    }
}

impl UserSpec {
    /// The email address or the name of the service. A document without flaws has one of them.
    pub fn handle(&self) -> String {
        self.email.as_deref().or(self.service.as_deref()).map(names::normalize_handle).unwrap_or_default()
    }
}

impl RuleSpec {
    /// The rule that the document wants.
    pub fn to_rule(&self) -> NewFederationRule {
        let mut permissions = self.permissions.clone();
        permissions.sort_unstable();
        permissions.dedup();
        NewFederationRule {
            name: self.name.clone(),
            user: self.user.clone(),
            issuer: self.issuer.clone(),
            audience: self.audience.clone(),
            audiences: self.audiences.clone().unwrap_or_default(),
            claims: self.claims.clone(),
            permissions,
            max: self.max,
            tags: self.tags.clone().unwrap_or_default(),
        }
    }
}

impl KeySpec {
    /// The digest in lower case, and the id: those of the two that are given.
    pub fn references(&self) -> impl Iterator<Item = String> {
        self.digest().into_iter().chain(self.id.map(|id| id.to_string()))
    }

    /// The digest in lower case.
    pub fn digest(&self) -> Option<String> {
        self.sha256.as_ref().map(|digest| digest.to_ascii_lowercase())
    }

    /// The key as messages name it.
    pub fn shown(&self) -> String {
        let reference = self.id.map(|id| id.to_string()).or_else(|| self.name.clone());
        reference.unwrap_or_else(|| self.sha256.clone().unwrap_or_default())
    }
}

impl From<LimitSpec> for LimitUpdate {
    fn from(LimitSpec { requests, per, burst }: LimitSpec) -> Self {
        Self { requests: Some(requests), per: Some(per), burst: burst.or(Some(requests)) }
    }
}
