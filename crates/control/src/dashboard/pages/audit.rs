//! The table of the changes of an organization, and the search for a request by its id.

use askama::Template;

use super::layout::Layout;
use super::paging::Paging;
use super::recorded::RecordSource;
use super::timestamp::Timestamp;
use super::use_row::UseRow;
use crate::management::ACTIONS;

/// The changes of the organization, or those about the user.
#[derive(Clone, Debug, Template)]
#[template(path = "audit.html")]
pub struct AuditPage {
    /// Page frame.
    pub layout: Layout,
    /// Filter of the changes.
    pub filter: ChangeFields,
    /// Search for a request; `None` when only changes about the user are shown, who is no admin.
    pub search: Option<RequestSearch>,
    /// Changes of this page, newest first; `None` when they cannot be read.
    pub rows: Option<Vec<ChangeRow>>,
    /// Links to the other pages.
    pub paging: Paging,
    /// Source of the records; `None` when they cannot be read.
    pub source: Option<RecordSource>,
}

/// Fields of the filter of changes, as they were entered, with the addresses of all that match.
#[derive(Clone, Debug, Default)]
pub struct ChangeFields {
    /// Id or email address of the user who made them.
    pub by: String,
    /// The operation; empty for any.
    pub action: String,
    /// Id of the key.
    pub key: String,
    /// First day, in UTC.
    pub from: String,
    /// Last day.
    pub to: String,
    /// Error in one of them.
    pub error: Option<String>,
    /// Address of the matching changes as CSV.
    pub csv: String,
    /// The same as lines of JSON.
    pub ndjson: String,
}

impl ChangeFields {
    /// Returns `true` if all changes are shown.
    pub fn is_any(&self) -> bool {
        self.query().iter().all(|(_, field)| field.is_empty())
    }

    /// The fields as parameters of an address.
    pub fn query(&self) -> [(&str, &str); 5] {
        let Self { by, action, key, from, to, .. } = self;
        [("by", by), ("action", action), ("key", key), ("from", from), ("to", to)]
    }
}

/// Search for a request by its id.
#[derive(Clone, Debug, Default)]
pub struct RequestSearch {
    /// The id; empty when none was sought.
    pub id: String,
    /// Explanation of an id that no record has.
    pub note: Option<String>,
    /// The record of the request, or those of several refusals that may stand for it.
    pub found: Vec<FoundRequest>,
}

/// A record of a request.
#[derive(Clone, Debug)]
pub struct FoundRequest {
    /// Id of the key; `None` of a request with a session.
    pub key: Option<String>,
    /// The request.
    pub row: UseRow,
}

/// A change.
#[derive(Clone, Debug)]
pub struct ChangeRow {
    /// Time.
    pub time: Timestamp,
    /// The operation, such as `key.revoke`.
    pub action: String,
    /// The user or the program who made it; `None`: the operator.
    pub by: Option<String>,
    /// The user who is acted on.
    pub subject: Option<String>,
    /// Id of the key that is changed.
    pub key: Option<String>,
    /// Address of the client that asked for it.
    pub ip: Option<String>,
    /// The outcome's name in records.
    pub outcome: &'static str,
}

impl AuditPage {
    /// The operations to choose from, with their texts.
    pub fn actions(&self) -> &'static [(&'static str, &'static str)] {
        &ACTIONS
    }
}

impl ChangeRow {
    /// The operation in words; its name when it has none.
    pub fn action_text(&self) -> &str {
        ACTIONS.iter().find(|(name, _)| *name == self.action).map_or(&self.action, |(_, text)| *text)
    }

    /// Says that the change was not made, or not yet; `None` when it was.
    pub fn flaw(&self) -> Option<&'static str> {
        match self.outcome {
            "completed" => None,
            "in_progress" => Some("In progress"),
            "client_error" => Some("Refused"),
            _ => Some("Not confirmed"),
        }
    }
}
