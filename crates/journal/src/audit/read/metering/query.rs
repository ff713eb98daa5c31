//! Questions about usage.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::period::BillingPeriod;
use domain::budget::{BudgetSubject, BudgetTotal};
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
    /// Uses that spent this budget only.
    pub budget: Option<SpentBy>,
}

/// The budget of a subject in a period.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpentBy {
    /// The subject.
    pub subject: BudgetSubject,
    /// Totals that start at this time or later: that of the period, and one from each reset on.
    pub from: Micros,
    /// Totals that start before this time.
    pub before: Micros,
}

impl SpentBy {
    /// Clocks of gateways are behind that of the state by less.
    pub const CLOCK_MARGIN: Duration = Duration::from_secs(24 * 3600);

    /// The question about its units.
    pub(crate) fn query(self) -> UsageQuery {
        let since = Some(self.from.before(Self::CLOCK_MARGIN));
        let (by, per, budget) = (UsageBy::Org, BillingPeriod::Month, Some(self));
        UsageQuery { by, per, since, until: None, by_gateway: false, org: None, budget }
    }

    /// Returns whether a total is one of these.
    pub(super) fn has(&self, total: &BudgetTotal) -> bool {
        self.subject == total.subject && self.from <= total.start && total.start < self.before
    }
}
