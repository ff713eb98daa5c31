//! The table of keys.

use askama::Template;

use super::activity::ActivityChart;
use super::layout::Layout;
use super::limits::BudgetCell;
use super::numbers::{format_count, format_counted};
use super::outcome::OutcomeText;
use super::paging::Paging;
use super::recorded::RecordSource;
use super::timestamp::Timestamp;
use crate::management::{KeyCount, KeySort, KeyStatus};

/// The keys of the organization, or the user's own.
#[derive(Clone, Debug, Template)]
#[template(path = "keys.html")]
pub struct KeysPage {
    /// Page frame.
    pub layout: Layout,
    /// True if the keys of all owners are shown, as admins see them.
    pub all_owners: bool,
    /// True if the organization is suspended.
    pub suspended: bool,
    /// Keys of this page.
    pub rows: Vec<KeyRow>,
    /// Number of keys that match the filter.
    pub count: KeyCount,
    /// Filter of the table.
    pub filter: KeyFilter,
    /// Order of the table.
    pub order: KeyOrder,
    /// Heads of the columns that the table is sorted by.
    pub columns: SortColumns,
    /// Link that selects all keys of this page, or none when they are selected.
    pub select: SelectLink,
    /// Links to the other pages.
    pub paging: Paging,
    /// Address of the keys of all pages as CSV.
    pub csv: String,
    /// The organization's budget, if it has one that is shown to this user.
    pub budget: Option<BudgetCell>,
    /// Source of the last 24 hours; `None` when they cannot be read.
    pub source: Option<RecordSource>,
}

/// Filter of the table: query parameters `q` and `state`.
#[derive(Clone, Debug, Default)]
pub struct KeyFilter {
    /// Part of the name, the key id or the owner's email address. Empty: any.
    pub text: String,
    /// State; `None`: any.
    pub state: Option<StateFilter>,
}

/// Order of the table: query parameter `sort`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyOrder {
    /// Field by which it is sorted.
    pub sort: KeySort,
    /// `true`: descending.
    pub descending: bool,
}

/// Heads of the columns that the table is sorted by.
#[derive(Clone, Debug)]
pub struct SortColumns {
    /// Name.
    pub name: SortColumn,
    /// Time of creation.
    pub created: SortColumn,
    /// Last use.
    pub last_used: SortColumn,
    /// Expiry.
    pub expires: SortColumn,
}

/// Head of a column that the table is sorted by.
#[derive(Clone, Debug)]
pub struct SortColumn {
    /// Text.
    pub label: &'static str,
    /// Address of the table in this order, or, when it is, in the other direction; `None` where the list is too long.
    pub href: Option<String>,
    /// Value of `aria-sort`, when the table is in this order.
    pub direction: Option<&'static str>,
}

/// Link that selects all keys of a page, or none when they are selected.
#[derive(Clone, Debug)]
pub struct SelectLink {
    /// True if all keys are selected.
    pub is_all: bool,
    /// Address of this page with the other selection.
    pub href: String,
}

/// State to filter by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StateFilter {
    /// A status.
    Status(KeyStatus),
    /// Valid, and expires soon.
    Expiring,
    /// Active, and not used for a while.
    Unused,
}

/// A key.
#[derive(Clone, Debug)]
pub struct KeyRow {
    /// Key id.
    pub id: String,
    /// Name.
    pub name: String,
    /// The owner's email address.
    pub owner: String,
    /// True if the signed-in user is the owner.
    pub is_own: bool,
    /// Time of creation.
    pub created: Timestamp,
    /// Last use; `None` when it was never used.
    pub last_use: Option<LastUseCell>,
    /// The last attempt to use it, when that was refused; `None` when the last use is the last attempt.
    pub refused_attempt: Option<AttemptCell>,
    /// State.
    pub state: KeyStatus,
    /// The change of its disabled mark that is offered.
    pub switch: Option<KeySwitch>,
    /// Time from which it is refused; `None`: never.
    pub expires: Option<Timestamp>,
    /// True if that time is near.
    pub is_expiring: bool,
    /// Other marks for the owner's attention, such as `Unused for 90 days`.
    pub marks: Vec<&'static str>,
    /// The last 24 hours; `None` when the journal cannot be read.
    pub activity: Option<ActivityChart>,
}

/// Change of the disabled mark of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeySwitch {
    /// Disable it.
    Disable,
    /// Enable it.
    Enable,
}

/// The last use of a key.
#[derive(Clone, Debug)]
pub struct LastUseCell {
    /// Time.
    pub time: Timestamp,
    /// Its client; `None` when the records that are read do not have it.
    pub source: Option<UseSource>,
    /// The text in place of a client that is not recorded.
    pub not_recorded: &'static str,
}

/// The last attempt to use a key, which was refused.
#[derive(Clone, Debug)]
pub struct AttemptCell {
    /// Time.
    pub time: Timestamp,
    /// Outcome of its refusal.
    pub outcome: &'static OutcomeText,
    /// Its client's IP address.
    pub ip: String,
}

/// The client of a use.
#[derive(Clone, Debug)]
pub struct UseSource {
    /// IP address.
    pub ip: String,
    /// User agent; `None` when none was sent.
    pub user_agent: Option<String>,
}

impl KeysPage {
    /// Returns `true` if there is no key at all.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty() && self.filter.is_any() && !self.paging.has_others()
    }

    /// Description of the table: how many keys match, and their order.
    pub fn summary(&self) -> String {
        let KeyCount { counted, is_complete, is_sortable } = self.count;
        let found = if self.filter.is_any() { "" } else { " found" };
        let count = match (counted, is_complete) {
            (_, true) => format!("{}{found}", format_counted(counted, "key")),
            // Not all keys were compared with the filter, and none of those matched.
            (0, false) => "Not all keys counted".to_owned(),
            (_, false) => format!("More than {} keys{found}", format_count(counted)),
        };
        let note = if is_sortable { "" } else { ". A list of more than 10,000 keys is sorted by creation only" };
        format!("{count}, {}{note}", self.order.text())
    }

    /// Returns `true` if a key can be selected.
    pub fn has_revocable(&self) -> bool {
        self.rows.iter().any(KeyRow::is_revocable)
    }

    /// The states to filter by.
    pub fn states(&self) -> [StateFilter; 9] {
        StateFilter::ALL
    }
}

impl KeyRow {
    /// Expiry and marks in one line, for where they are cut off.
    pub fn notes(&self) -> String {
        let expires = self.expires.as_ref().map(|time| format!("Expires {}", time.exact));
        let marks = self.marks.iter().map(|mark| (*mark).to_owned());
        expires.into_iter().chain(marks).collect::<Vec<_>>().join(", ")
    }

    /// Returns `true` if the key has expired.
    pub fn is_expired(&self) -> bool {
        self.state == KeyStatus::Expired
    }

    /// Returns `true` if the key can be selected and changed.
    pub fn is_revocable(&self) -> bool {
        self.state != KeyStatus::Revoked
    }
}

impl KeyOrder {
    /// The order of a parameter: `name`, or `-name` for descending; the newest first of any other text.
    pub fn from_parameter(text: &str) -> Self {
        KeySort::from_parameter(text).map_or_else(Self::default, |(sort, descending)| Self { sort, descending })
    }

    /// The parameter; empty for the default.
    pub fn parameter(self) -> String {
        if self == Self::default() { String::new() } else { self.sort.parameter(self.descending) }
    }

    /// The order in which a click on the head of a column puts the table: the other direction when it is sorted by
    /// that already.
    pub fn after_click(self, sort: KeySort) -> Self {
        let begins_descending = matches!(sort, KeySort::Created | KeySort::LastUsed);
        Self { sort, descending: if self.sort == sort { !self.descending } else { begins_descending } }
    }

    fn text(self) -> &'static str {
        match (self.sort, self.descending) {
            (KeySort::Created, true) => "newest first",
            (KeySort::Created, false) => "oldest first",
            (KeySort::Name, false) => "by name",
            (KeySort::Name, true) => "by name, from Z to A",
            (KeySort::LastUsed, true) => "last used first",
            (KeySort::LastUsed, false) => "longest unused first",
            (KeySort::Expires, false) => "expiring soonest first",
            (KeySort::Expires, true) => "expiring latest first",
        }
    }
}

impl Default for KeyOrder {
    fn default() -> Self {
        Self { sort: KeySort::Created, descending: true }
    }
}

impl SortColumns {
    /// The heads of a table in this order; without links, but for creation, where the list is too long for others.
    pub fn new(order: KeyOrder, is_sortable: bool, href: impl Fn(KeyOrder) -> String) -> Self {
        let column = |sort: KeySort, label| SortColumn {
            label,
            href: (is_sortable || sort.is_created()).then(|| href(order.after_click(sort))),
            direction: (order.sort == sort).then_some(if order.descending { "descending" } else { "ascending" }),
        };
        Self {
            name: column(KeySort::Name, "Name"),
            created: column(KeySort::Created, "Created"),
            last_used: column(KeySort::LastUsed, "Last used"),
            expires: column(KeySort::Expires, "Expires"),
        }
    }
}

impl KeyFilter {
    /// Returns `true` if the filter selects this state.
    pub fn selects(&self, state: &StateFilter) -> bool {
        self.state.as_ref() == Some(state)
    }

    /// Returns `true` if the filter matches every key.
    pub fn is_any(&self) -> bool {
        self.text.is_empty() && self.state.is_none()
    }
}

impl StateFilter {
    /// All choices.
    pub const ALL: [Self; 9] = [
        Self::Status(KeyStatus::Active),
        Self::Expiring,
        Self::Status(KeyStatus::Disabled),
        Self::Unused,
        Self::Status(KeyStatus::Revoked),
        Self::Status(KeyStatus::Expired),
        Self::Status(KeyStatus::UserRemoved),
        Self::Status(KeyStatus::UserSuspended),
        Self::Status(KeyStatus::OrgSuspended),
    ];

    /// Shown text.
    pub fn label(self) -> &'static str {
        match self {
            Self::Status(status) => status.label(),
            Self::Expiring => "Expiring within 7 days",
            Self::Unused => "Unused for 30 days",
        }
    }

    /// Name in addresses.
    pub fn name(self) -> &'static str {
        match self {
            Self::Status(status) => status.name(),
            Self::Expiring => "expiring",
            Self::Unused => "unused",
        }
    }

    /// The choice with this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|filter| filter.name() == name)
    }
}
