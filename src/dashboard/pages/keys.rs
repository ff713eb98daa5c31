//! The table of keys.

use askama::Template;

use super::activity::ActivityChart;
use super::key_state::KeyState;
use super::layout::Layout;
use super::numbers::{count, counted};
use super::paging::Paging;
use super::timestamp::Timestamp;

/// The keys of the organization, or the person's own.
#[derive(Clone, Debug, Template)]
#[template(path = "keys.html")]
pub struct KeysPage {
    /// What is around it.
    pub layout: Layout,
    /// Whether keys of others are shown too, as admins see them.
    pub all: bool,
    /// Whether the organization is suspended.
    pub suspended: bool,
    /// The keys of this page.
    pub rows: Vec<KeyRow>,
    /// Which keys are wanted.
    pub filter: KeyFilter,
    /// How many satisfy the filter.
    pub found: u64,
    /// How many there are.
    pub total: u64,
    /// Where this page is among those of the keys found.
    pub paging: Paging,
    /// The name of the gateway whose records the last 24 hours are; none when they could not be read.
    pub gateway: Option<String>,
}

/// Which keys are wanted: query parameters `q` and `state`.
#[derive(Clone, Debug, Default)]
pub struct KeyFilter {
    /// A part of the name, the key id or the owner's email; empty: any.
    pub text: String,
    /// The state; none: any.
    pub state: Option<KeyState>,
}

/// A key.
#[derive(Clone, Debug)]
pub struct KeyRow {
    /// The key id.
    pub id: String,
    /// Its name.
    pub name: String,
    /// The owner's email.
    pub owner: String,
    /// Whether the owner is the reader.
    pub own: bool,
    /// When it was made.
    pub created: Timestamp,
    /// Its last use; none when it was never used.
    pub last_use: Option<LastUseCell>,
    /// Its state.
    pub state: KeyState,
    /// Its last 24 hours; none when they could not be read.
    pub activity: Option<ActivityChart>,
}

/// The last use of a key.
#[derive(Clone, Debug)]
pub struct LastUseCell {
    /// When it was.
    pub when: Timestamp,
    /// Where it came from; none when this gateway has no record of it.
    pub details: Option<UseSource>,
}

/// Where a use came from.
#[derive(Clone, Debug)]
pub struct UseSource {
    /// The client's IP address.
    pub ip: String,
    /// The client's user agent; none when it sent none.
    pub user_agent: Option<String>,
}

impl KeysPage {
    /// How many keys are shown, in words.
    pub fn summary(&self) -> String {
        if self.filter.is_any() {
            counted(self.total, "key")
        } else {
            format!("{} of {} found", count(self.found), counted(self.total, "key"))
        }
    }

    /// The states that can be asked for.
    pub fn states(&self) -> [KeyState; 4] {
        KeyState::ALL
    }
}

impl KeyFilter {
    /// Whether this state is the one asked for.
    pub fn asks(&self, state: &KeyState) -> bool {
        self.state.as_ref() == Some(state)
    }

    /// Whether any key is wanted.
    pub fn is_any(&self) -> bool {
        self.text.is_empty() && self.state.is_none()
    }
}
