//! The overview of an organization, for its admins: usage in a range, what uses it most, and what needs attention.

use askama::Template;

use super::layout::Layout;
use super::limits::{BudgetCell, Gauge};
use super::timestamp::Timestamp;
use super::usage::{ShareRow, UsagePart};

/// The overview of an organization.
#[derive(Clone, Debug, Template)]
#[template(path = "overview.html")]
pub struct OverviewPage {
    /// Page frame.
    pub layout: Layout,
    /// True if the organization is suspended.
    pub suspended: bool,
    /// Usage in the chosen range.
    pub part: UsagePart,
    /// Requests in flight now; `None` of an organization without keys.
    pub in_flight: Option<Gauge>,
    /// The organization's budget, if it has one.
    pub budget: Option<BudgetCell>,
    /// The keys with most requests, busiest first.
    pub keys: Vec<ShareRow>,
    /// The routes with most requests, busiest first.
    pub routes: Vec<ShareRow>,
    /// Some active keys that expire within a week.
    pub expiring: KeyLinks,
    /// Some active keys that were not used for a month.
    pub unused: KeyLinks,
}

/// Some keys of a list.
#[derive(Clone, Debug)]
pub struct KeyLinks {
    /// The first ones.
    pub keys: Vec<KeyLink>,
    /// Address of the whole list, where there may be more.
    pub more: Option<String>,
}

/// A key of a list.
#[derive(Clone, Debug)]
pub struct KeyLink {
    /// Key id.
    pub id: String,
    /// Name.
    pub name: String,
    /// The time for which it is listed: its expiry, or its last use; `None` when it was never used.
    pub time: Option<Timestamp>,
}
