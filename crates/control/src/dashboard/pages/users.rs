//! The table of users.

use askama::Template;

use super::layout::Layout;
use super::numbers::format_count;
use super::paging::Paging;
use super::policy::PermissionChoice;
use super::timestamp::Timestamp;
use crate::management::{Responsible, UserStatus};
use domain::secret::Secret;

/// The users of the organization, for admins.
#[derive(Clone, Debug, Template)]
#[template(path = "users.html")]
pub struct UsersPage {
    /// Page frame.
    pub layout: Layout,
    /// Users of this page.
    pub rows: Vec<UserRow>,
    /// Links to the other pages.
    pub paging: Paging,
    /// True if admins add, permit and remove people.
    pub are_managed: bool,
}

/// The page that asks before a user is suspended.
#[derive(Clone, Debug, Template)]
#[template(path = "suspend_user.html")]
pub struct SuspendUserPage {
    /// Page frame.
    pub layout: Layout,
    /// Id.
    pub id: String,
    /// Email address, or name of a service.
    pub email: String,
    /// Number of the active keys; `None`: more than were counted.
    pub keys: Option<u64>,
}

impl SuspendUserPage {
    /// The keys that stop, as a sentence.
    pub fn keys_text(&self) -> String {
        match self.keys {
            None => "Hundreds of active API keys stop at once.".to_owned(),
            Some(0) => "No active API key stops: there is none.".to_owned(),
            Some(1) => "1 active API key stops at once.".to_owned(),
            Some(keys) => format!("{} active API keys stop at once.", format_count(keys)),
        }
    }
}

/// The form that adds a person. Fields: `email`, and `permission`, once for each that is ticked.
#[derive(Clone, Debug, Template)]
#[template(path = "add_user.html")]
pub struct AddUserPage {
    /// Page frame.
    pub layout: Layout,
    /// The address that was entered.
    pub email: String,
    /// The permissions to choose from: those of the admin.
    pub permissions: Vec<PermissionChoice>,
    /// Error in the address.
    pub error: Option<String>,
}

/// The page of a person, with the forms that admins have.
#[derive(Clone, Debug, Template)]
#[template(path = "user.html")]
pub struct UserPage {
    /// Page frame.
    pub layout: Layout,
    /// Id.
    pub id: String,
    /// Email address.
    pub email: String,
    /// State: requests as the person are admitted, or why not.
    pub state: UserStatus,
    /// The permissions to choose from: those of the person and of the admin.
    pub permissions: Vec<PermissionChoice>,
    /// A new sign-in link, and its end.
    pub link: Option<(Secret, Timestamp)>,
    /// Error in the form that removes the person.
    pub error: Option<String>,
}

/// A user.
#[derive(Clone, Debug)]
pub struct UserRow {
    /// Id.
    pub id: String,
    /// Email address, or name of a service.
    pub email: String,
    /// The person who is responsible for a service; `None` for a person.
    pub responsible: Option<ResponsibleCell>,
    /// True if it is the user who looks at the page.
    pub is_viewer: bool,
    /// State: requests as the user are admitted, or why not.
    pub state: UserStatus,
    /// True of a suspension that only the operator takes back.
    pub is_of_operator: bool,
    /// Permissions, with commas; empty when there are none.
    pub permissions: String,
    /// Plan; `None` when it has none of its own.
    pub plan: Option<String>,
    /// Time of creation.
    pub created: Timestamp,
}

impl UserRow {
    /// Returns whether it is a person who is not removed.
    pub fn is_person(&self) -> bool {
        self.responsible.is_none() && self.state != UserStatus::Removed
    }
}

/// The person who is responsible for a service.
#[derive(Clone, Debug)]
pub struct ResponsibleCell {
    /// Email address, or id when the address is not known any more.
    pub name: String,
    /// Reason for which the person cannot act any more, and another one should be named; none while the person can.
    pub gone: Option<UserStatus>,
}

impl ResponsibleCell {
    pub(in crate::dashboard) fn new(responsible: &Responsible) -> Self {
        Self { name: responsible.label(), gone: responsible.is_gone().then_some(responsible.status) }
    }
}
