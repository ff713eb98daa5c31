//! Questions about usage.

use serde::{Deserialize, Serialize};

use super::period::BillingPeriod;
use domain::clock::Micros;
use domain::identity::OrgId;

/// The subjects by which usage is added up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum UsageBy {
    /// Organizations.
    Org,
    /// Keys.
    Key,
    /// Routes.
    Route,
}

/// A question about usage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UsageQuery {
    /// The subjects.
    pub by: UsageBy,
    /// The periods.
    pub per: BillingPeriod,
    /// Uses that began at this time or later.
    pub since: Option<Micros>,
    /// Uses that began before this time.
    pub until: Option<Micros>,
    /// A row for each gateway that recorded uses, where the journal has several names.
    pub by_gateway: bool,
    /// Uses of this organization only.
    pub org: Option<OrgId>,
}
