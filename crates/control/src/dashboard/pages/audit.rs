//! The table of the changes of an organization, and the search for a request by its id.

use askama::Template;

use super::key::UseRow;
use super::layout::Layout;
use super::paging::Paging;
use super::recorded::RecordSource;
use super::timestamp::Timestamp;

/// The changes of the organization, or those about the user.
#[derive(Clone, Debug, Template)]
#[template(path = "audit.html")]
pub struct AuditPage {
    /// Page frame.
    pub layout: Layout,
    /// Search for a request; `None` when only changes about the user are shown, who is no admin.
    pub search: Option<RequestSearch>,
    /// Changes of this page, newest first; `None` when they cannot be read.
    pub rows: Option<Vec<ChangeRow>>,
    /// Links to the other pages.
    pub paging: Paging,
    /// Source of the records; `None` when they cannot be read.
    pub source: Option<RecordSource>,
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

/// Operations and their texts.
const ACTIONS: [(&str, &str); 42] = [
    ("key.create", "Created a key"),
    ("key.import", "Imported a key"),
    ("key.rotate", "Rotated a key"),
    ("key.revoke", "Revoked a key"),
    ("key.set", "Changed the policy of a key"),
    ("key.rename", "Renamed a key"),
    ("key.disable", "Disabled a key"),
    ("key.disable_unused", "Key disabled as unused"),
    ("key.enable", "Enabled a key"),
    ("key.limits", "Changed the limits of a key"),
    ("key.plan", "Changed the plan of a key"),
    ("key.quota", "Changed the budget of a key"),
    ("user.create", "Added a user"),
    ("user.permit", "Changed the permissions of a user"),
    ("user.withdraw", "Withdrew a user"),
    ("user.suspend", "Suspended a user"),
    ("user.resume", "Resumed a user"),
    ("user.reassign", "Named another person responsible for a service"),
    ("user.plan", "Changed the plan of a user"),
    ("user.quota", "Changed the budget of a user"),
    ("user.remove", "Removed a user"),
    ("org.create", "Created the organization"),
    ("org.suspend", "Suspended the organization"),
    ("org.resume", "Resumed the organization"),
    ("org.policy", "Changed the policy of the organization for new keys"),
    ("org.limits", "Changed the limits of the organization"),
    ("org.plan", "Changed the plan of the organization"),
    ("org.quota", "Changed the budget of the organization"),
    ("quota.reset", "Reset what is spent of a budget"),
    ("quota.near", "80 % of a budget is spent"),
    ("key.expiring", "A key expires soon"),
    ("key.leaked", "A key has leaked"),
    ("key.unused", "A key is disabled soon, because it is unused"),
    ("token.expiring", "A management token expires soon"),
    ("session.link", "Created a sign-in link"),
    ("session.start", "Signed in"),
    ("session.choose_org", "Switched to the organization"),
    ("session.end", "Ended a session"),
    ("token.create", "Created a management token"),
    ("token.revoke", "Revoked a management token"),
    ("state.import", "Imported data"),
    ("state.accept", "Accepted the state"),
];

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
