//! The table of keys.

use askama::Template;

use super::activity::ActivityChart;
use super::layout::Layout;
use super::limits::BudgetCell;
use super::numbers::format_counted;
use super::outcome::OutcomeText;
use super::paging::Paging;
use super::recorded::RecordSource;
use super::timestamp::Timestamp;
use crate::management::KeyStatus;

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
    /// Filter of the table.
    pub filter: KeyFilter,
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
    /// Time from which it is refused; `None`: never.
    pub expires: Option<Timestamp>,
    /// True if that time is near.
    pub is_expiring: bool,
    /// Other marks for the owner's attention, such as `Unused for 90 days`.
    pub marks: Vec<&'static str>,
    /// The last 24 hours; `None` when the journal cannot be read.
    pub activity: Option<ActivityChart>,
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

    /// Description of the table: the order, and with a filter how many keys were found.
    pub fn summary(&self) -> String {
        let found = format_counted(self.rows.len() as u64, "key");
        match (self.filter.is_any(), self.paging.has_others()) {
            (true, _) => "Newest keys first".to_owned(),
            (false, false) => format!("{found} found, newest first"),
            (false, true) => format!("{found} found on this page, newest first"),
        }
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

    /// Returns `true` if the key can be selected, and revoked.
    pub fn is_revocable(&self) -> bool {
        self.state != KeyStatus::Revoked
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
