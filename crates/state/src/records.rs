//! Records of the directory: organizations, users and keys, as management sees them.

use std::ops::RangeInclusive;

use serde::{Deserialize, Serialize};

use crate::OrgPolicy;
use domain::budget::OwnBudget;
use domain::clock::Micros;
use domain::identity::{OrgId, Permission, UserId, Voucher};
use domain::key::policy::KeyPolicy;
use domain::key::{KeyId, OrgTag};
use domain::plan_name::PlanName;
use domain::quota::Quota;

/// An organization.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Org {
    /// Its id.
    pub id: OrgId,
    /// Its tag: the beginning of the ids of all its keys. Unique.
    pub tag: OrgTag,
    /// Its name. Unique.
    pub name: String,
    /// Time of creation.
    pub created: Micros,
    /// True while it is suspended: all its requests are refused.
    pub suspended: bool,
    /// Its own limit of requests in flight, in place of the configured one.
    pub concurrent: Option<u32>,
    /// Plan of its keys, unless they or their users have one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plan: Option<PlanName>,
    /// Its own budget, before that of any plan.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub budget: Option<OwnBudget>,
    /// Its policy for keys that are created from now on.
    #[serde(default, skip_serializing_if = "OrgPolicy::is_empty")]
    pub policy: OrgPolicy,
}

impl Org {
    /// Requests in flight that an organization may be given.
    pub const CONCURRENT: RangeInclusive<u32> = 1..=1_000_000;

    /// A new organization, with the configured limit and without a policy.
    pub fn new(id: OrgId, tag: OrgTag, name: impl Into<String>, created: Micros) -> Self {
        Self {
            id,
            tag,
            name: name.into(),
            created,
            suspended: false,
            concurrent: None,
            plan: None,
            budget: None,
            policy: OrgPolicy::default(),
        }
    }
}

/// A user of one organization.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct User {
    /// Its id.
    pub id: UserId,
    /// Its organization.
    pub org: OrgId,
    /// Its email address; of a service its name, which has no `@`. Unique among the users of the organization that are
    /// not removed.
    pub email: String,
    /// Its permissions; sorted, each once.
    pub permissions: Vec<Permission>,
    /// Time of creation.
    pub created: Micros,
    /// Time of removal. The record of a removed user stays, because keys and audit records name it.
    pub removed: Option<Micros>,
    /// The provider that vouches for the membership; none of a user whom only the operator has entered.
    pub vouched_by: Option<Voucher>,
    /// Time since which this provider no longer vouches for the membership. Until it does again, requests as the user
    /// are refused; `permissions` are those of before.
    pub withdrawn: Option<Micros>,
    /// Time since which the user is suspended: all requests as the user are refused until it is resumed.
    pub suspended: Option<Micros>,
    /// True of a suspension by the operator, who alone resumes the user.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub suspended_by_operator: bool,
    /// The person who is responsible for a service; none of a person. A service never signs in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub responsible: Option<UserId>,
    /// Plan of its keys and sessions, unless a key has one; before that of the organization.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plan: Option<PlanName>,
    /// Its own budget, before that of any plan.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub budget: Option<OwnBudget>,
}

impl User {
    /// A new person without permissions, whom no provider vouches for.
    pub fn new(id: UserId, org: OrgId, email: impl Into<String>, created: Micros) -> Self {
        Self {
            id,
            org,
            email: email.into(),
            permissions: Vec::new(),
            created,
            removed: None,
            vouched_by: None,
            withdrawn: None,
            suspended: None,
            suspended_by_operator: false,
            responsible: None,
            plan: None,
            budget: None,
        }
    }

    /// Returns true for the account of a service, false for a person.
    pub fn is_service(&self) -> bool {
        self.responsible.is_some()
    }

    /// Returns true when the user may act in the organization: neither removed, nor withdrawn, nor suspended.
    pub fn is_active(&self) -> bool {
        self.removed.is_none() && self.withdrawn.is_none() && self.suspended.is_none()
    }

    /// The permissions that requests as the user have: none while the user is withdrawn.
    pub(crate) fn permissions_in_force(&self) -> &[Permission] {
        if self.withdrawn.is_some() { &[] } else { &self.permissions }
    }
}

/// A key without its digests.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Key {
    /// Its public id.
    pub id: KeyId,
    /// Its organization.
    pub org: OrgId,
    /// Its user, whose permissions it has.
    pub user: UserId,
    /// Name given at creation.
    pub name: String,
    /// True when it was imported by its SHA-256 from an older system.
    pub imported: bool,
    /// True for a session quota key, which has no secret: it meters the requests of its user's web sessions.
    pub session_quota_key: bool,
    /// Time of creation.
    pub created: Micros,
    /// Time of the last rotation.
    pub rotated: Option<Micros>,
    /// Time until which the secret before the last rotation is valid.
    pub previous_until: Option<Micros>,
    /// Time of revocation.
    pub revoked: Option<Micros>,
    /// Its own quota, in place of the configured one.
    pub quota: Option<Quota>,
    /// Its plan, before those of its user and its organization.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plan: Option<PlanName>,
    /// Its own budget, before that of any plan.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub budget: Option<OwnBudget>,
    /// Its policy; none of most keys. The one within is never empty.
    pub policy: Option<Box<KeyPolicy>>,
    /// Time of the last admitted use.
    pub last_used: Option<Micros>,
    /// Number of admitted uses.
    pub uses: u64,
}

impl Key {
    /// A new key, which was never used, with the configured quota and without a policy.
    pub fn new(id: KeyId, org: OrgId, user: UserId, name: impl Into<String>, created: Micros) -> Self {
        Self {
            id,
            org,
            user,
            name: name.into(),
            imported: false,
            session_quota_key: false,
            created,
            rotated: None,
            previous_until: None,
            revoked: None,
            quota: None,
            plan: None,
            budget: None,
            policy: None,
            last_used: None,
            uses: 0,
        }
    }
}
