//! The line of a user.

use serde::{Deserialize, Serialize};

use super::fields::{CreationLine, check_name, check_normalized};
use super::invalid_record::InvalidRecord;
use crate::bucket::Bucket;
use crate::{CreationBucket, User, UserExport};
use domain::budget::OwnBudget;
use domain::clock::{self, Micros};
use domain::identity::{OrgId, Permission, UserId, Voucher};
use domain::names;
use domain::plan_name::PlanName;
use domain::quota::EXACT;

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct UserLine {
    id: UserId,
    org: OrgId,
    email: String,
    permissions: Vec<Permission>,
    #[serde(with = "clock::rfc3339")]
    created: Micros,
    #[serde(with = "clock::rfc3339::option")]
    removed: Option<Micros>,
    /// This and the next six are left out when there are none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    vouched_by: Option<Voucher>,
    #[serde(default, with = "clock::rfc3339::option", skip_serializing_if = "Option::is_none")]
    withdrawn: Option<Micros>,
    #[serde(default, with = "clock::rfc3339::option", skip_serializing_if = "Option::is_none")]
    suspended: Option<Micros>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    suspended_by_operator: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    responsible: Option<UserId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    plan: Option<PlanName>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    budget: Option<OwnBudget>,
    /// The bucket of the keys that the user creates.
    creation: Option<CreationLine>,
}

impl From<&UserExport> for UserLine {
    fn from(export: &UserExport) -> Self {
        let User {
            id,
            org,
            email,
            permissions,
            created,
            removed,
            vouched_by,
            withdrawn,
            suspended,
            suspended_by_operator,
            responsible,
            plan,
            budget,
        } = export.user.clone();
        let creation = export.creation.map(|CreationBucket { bucket: Bucket { level, at }, per_us }| CreationLine {
            level,
            at,
            per_us,
        });
        Self {
            id,
            org,
            email,
            permissions,
            created,
            removed,
            vouched_by,
            withdrawn,
            suspended,
            suspended_by_operator,
            responsible,
            plan,
            budget,
            creation,
        }
    }
}

impl UserLine {
    pub(super) fn into_export(self) -> Result<UserExport, InvalidRecord> {
        let Self {
            id,
            org,
            email,
            permissions,
            created,
            removed,
            vouched_by,
            withdrawn,
            suspended,
            suspended_by_operator,
            responsible,
            plan,
            budget,
            creation,
        } = self;
        match responsible {
            None => check_normalized(&email, &names::validate_email(&email)?)?,
            Some(_) => check_name(&email, names::validate_service_name(&email))?,
        }
        if !permissions.is_sorted_by(|one, next| one < next) {
            return Err(InvalidRecord::Permissions);
        }
        let is_exact = |line: &CreationLine| line.level.unsigned_abs() < EXACT && (1..EXACT).contains(&line.per_us);
        if creation.as_ref().is_some_and(|line| !is_exact(line)) {
            return Err(InvalidRecord::Level);
        }
        let creation =
            creation.map(|CreationLine { level, at, per_us }| CreationBucket { bucket: Bucket { level, at }, per_us });
        let user = User {
            id,
            org,
            email,
            permissions,
            created,
            removed,
            vouched_by,
            withdrawn,
            suspended,
            suspended_by_operator,
            responsible,
            plan,
            budget,
        };
        Ok(UserExport { user, creation })
    }
}
