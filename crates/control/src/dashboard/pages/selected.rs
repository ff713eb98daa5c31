//! Keys that were selected in the list: the page that asks before they are changed, and the one that says which of
//! them were not.

use askama::Template;

use super::layout::Layout;
use super::numbers::format_counted;
use super::timestamp::Timestamp;
use crate::management::KeyStatus;

/// The form that confirms a change of several keys. Fields: `action`, `key` for each, and `count`, which must be the
/// number of keys, when it is asked for.
#[derive(Clone, Debug, Template)]
#[template(path = "selected.html")]
pub struct SelectedPage {
    /// Page frame.
    pub layout: Layout,
    /// The change.
    pub action: SelectedAction,
    /// The keys.
    pub rows: Vec<SelectedRow>,
    /// Error in the selection, or in the number that was typed.
    pub error: Option<String>,
}

/// The result of a change that some of the keys did not get.
#[derive(Clone, Debug, Template)]
#[template(path = "selected_result.html")]
pub struct SelectedResultPage {
    /// Page frame.
    pub layout: Layout,
    /// The change.
    pub action: SelectedAction,
    /// Number of keys that were changed.
    pub changed: usize,
    /// The others, each with the reason.
    pub failures: Vec<(SelectedRow, String)>,
}

/// A selected key.
#[derive(Clone, Debug)]
pub struct SelectedRow {
    /// Key id.
    pub id: String,
    /// Name.
    pub name: String,
    /// The owner's email address.
    pub owner: String,
    /// State.
    pub state: KeyStatus,
    /// Last use; `None` when it was never used.
    pub last_used: Option<Timestamp>,
    /// True if it was used in the last 24 hours, so a program probably needs it.
    pub is_in_use: bool,
}

/// A change of several keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SelectedAction {
    /// They are refused until they are enabled.
    Disable,
    /// They are refused for good.
    Revoke,
}

impl SelectedPage {
    /// The number of keys, in words: `1 key`, `3 keys`.
    pub fn count_text(&self) -> String {
        format_counted(self.rows.len() as u64, "key")
    }

    /// The number of keys in use, in words.
    pub fn in_use_text(&self) -> String {
        format_counted(self.rows.iter().filter(|row| row.is_in_use).count() as u64, "key")
    }

    /// Returns `true` if a key was used in the last 24 hours.
    pub fn has_key_in_use(&self) -> bool {
        self.rows.iter().any(|row| row.is_in_use)
    }

    /// Returns `true` if the number of keys is asked for: a revocation cannot be undone, and programs would fail.
    pub fn asks_count(&self) -> bool {
        self.action == SelectedAction::Revoke && self.has_key_in_use()
    }
}

impl SelectedResultPage {
    /// The number of keys that were changed, in words.
    pub fn changed_text(&self) -> String {
        format_counted(self.changed as u64, "key")
    }

    /// The number of the others, in words.
    pub fn failed_text(&self) -> String {
        format_counted(self.failures.len() as u64, "key")
    }
}

impl SelectedAction {
    /// Submitted value.
    pub fn value(self) -> &'static str {
        match self {
            Self::Disable => "disable",
            Self::Revoke => "revoke",
        }
    }

    /// The action, as a verb at the beginning of a sentence.
    pub fn verb(self) -> &'static str {
        match self {
            Self::Disable => "Disable",
            Self::Revoke => "Revoke",
        }
    }

    /// The keys after the action: `disabled`.
    pub fn participle(self) -> &'static str {
        match self {
            Self::Disable => "disabled",
            Self::Revoke => "revoked",
        }
    }

    /// The action with this submitted value.
    pub fn from_value(value: &str) -> Option<Self> {
        [Self::Disable, Self::Revoke].into_iter().find(|action| action.value() == value)
    }
}
