//! The table of users.

use askama::Template;

use super::layout::Layout;
use super::paging::Paging;
use super::timestamp::Timestamp;
use crate::management::User;

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
}

/// A user.
#[derive(Clone, Debug)]
pub struct UserRow {
    /// Id.
    pub id: String,
    /// Email address.
    pub email: String,
    /// True if it is the user who looks at the page.
    pub is_viewer: bool,
    /// State: requests as the user are admitted, or why not.
    pub state: UserState,
    /// Permissions, with commas; empty when there are none.
    pub permissions: String,
    /// Time of creation.
    pub created: Timestamp,
}

/// State of a user: active, or the first reason to refuse requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UserState {
    /// Requests are admitted.
    Active,
    /// The user was removed, for good.
    Removed,
    /// The user is suspended.
    Suspended,
    /// The identity provider no longer vouches for the membership.
    Withdrawn,
}

impl UserState {
    pub(in crate::dashboard) fn of(user: &User) -> Self {
        if user.removed.is_some() {
            Self::Removed
        } else if user.suspended.is_some() {
            Self::Suspended
        } else if user.withdrawn.is_some() {
            Self::Withdrawn
        } else {
            Self::Active
        }
    }

    /// The state in words.
    pub fn label(self) -> &'static str {
        match self {
            Self::Active => "Active",
            Self::Removed => "Removed",
            Self::Suspended => "Suspended",
            Self::Withdrawn => "Withdrawn by the provider",
        }
    }

    /// Name in style sheets: active users and refused ones look as keys do.
    pub fn name(self) -> &'static str {
        match self {
            Self::Active => "active",
            Self::Removed => "owner-removed",
            Self::Suspended | Self::Withdrawn => "owner-suspended",
        }
    }
}
