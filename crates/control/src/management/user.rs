//! A user as management shows it: a person, or the account of a service with the person who is responsible for it.

use std::collections::{HashMap, HashSet};

use futures_util::future::try_join_all;
use serde::{Deserialize, Serialize};

use super::{Management, ManagementError};
use domain::budget::OwnBudget;
use domain::clock::{self, Micros};
use domain::identity::{OrgId, Permission, UserId};
use domain::plan_name::PlanName;
use state::{self, ETag};

/// User of an organization.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs, reason = "as in state::User")]
pub struct User {
    pub id: UserId,
    #[serde(default)]
    pub kind: UserKind,
    /// Email address of a person, name of a service.
    pub email: String,
    pub org: OrgId,
    pub permissions: Vec<Permission>,
    #[serde(with = "clock::rfc3339")]
    pub created: Micros,
    #[serde(with = "clock::rfc3339::option")]
    pub removed: Option<Micros>,
    /// Name of the provider that vouches for the membership; none of a user whom only the operator has entered.
    #[serde(default)]
    pub provider: Option<String>,
    #[serde(default, with = "clock::rfc3339::option")]
    pub withdrawn: Option<Micros>,
    #[serde(default, with = "clock::rfc3339::option", skip_serializing_if = "Option::is_none")]
    pub suspended: Option<Micros>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub suspended_by_operator: bool,
    /// The person who is responsible for a service; none of a person.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub responsible: Option<Responsible>,
    /// The plan of its keys and sessions, unless a key has one; left out when there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plan: Option<PlanName>,
    /// Its own quota of a period, before that of its organization and of plans; left out when there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quota: Option<OwnBudget>,
    /// Entity tag of the record; none of one that came over a wire.
    #[serde(skip)]
    pub etag: Option<ETag>,
}

/// Kind of a user.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum UserKind {
    /// A person, who can sign in.
    #[default]
    Person,
    /// A service, which never signs in.
    Service,
}

/// Status of a user: active, or the first reason to refuse requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum UserStatus {
    /// Requests are admitted.
    Active,
    /// The user was removed, for good.
    Removed,
    /// The user is suspended.
    Suspended,
    /// The identity provider no longer vouches for the membership.
    Withdrawn,
}

/// The person who is responsible for a service. Their suspension or removal stops nothing of the service.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Responsible {
    /// Id of the user.
    pub id: UserId,
    /// Email address; empty of a user whom the organization does not have any more.
    pub email: String,
    /// Status of the user.
    pub status: UserStatus,
}

impl User {
    /// From the record, and the person who is responsible for it.
    pub(crate) fn new(user: state::User, responsible: Option<Responsible>) -> Self {
        let kind = UserKind::of(&user);
        let etag = Some(user.etag());
        let provider = user.vouched_by.map(|voucher| voucher.provider);
        Self {
            id: user.id,
            kind,
            email: user.email,
            org: user.org,
            permissions: user.permissions,
            created: user.created,
            removed: user.removed,
            provider,
            withdrawn: user.withdrawn,
            suspended: user.suspended,
            suspended_by_operator: user.suspended_by_operator,
            responsible,
            plan: user.plan,
            quota: user.budget,
            etag,
        }
    }

    /// Status of the user.
    pub fn status(&self) -> UserStatus {
        UserStatus::new(self.removed, self.suspended, self.withdrawn)
    }
}

impl UserKind {
    pub(super) fn of(user: &state::User) -> Self {
        if user.is_service() { Self::Service } else { Self::Person }
    }

    /// Returns true for a person.
    pub fn is_person(&self) -> bool {
        *self == Self::Person
    }
}

impl UserStatus {
    fn new(removed: Option<Micros>, suspended: Option<Micros>, withdrawn: Option<Micros>) -> Self {
        if removed.is_some() {
            Self::Removed
        } else if suspended.is_some() {
            Self::Suspended
        } else if withdrawn.is_some() {
            Self::Withdrawn
        } else {
            Self::Active
        }
    }

    /// The status in words.
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

impl Responsible {
    /// From the id in the record of the service, and the user with this id, if the organization has one.
    pub(super) fn new(id: UserId, user: Option<&state::User>) -> Self {
        let status = |user: &state::User| UserStatus::new(user.removed, user.suspended, user.withdrawn);
        Self {
            id,
            email: user.map(|user| user.email.clone()).unwrap_or_default(),
            status: user.map_or(UserStatus::Removed, status),
        }
    }

    /// The email address, or the id when the address is not known any more.
    pub fn label(&self) -> String {
        if self.email.is_empty() { self.id.to_string() } else { self.email.clone() }
    }

    /// Returns true when the person cannot act in the organization any more, so that another one should be named.
    pub fn is_gone(&self) -> bool {
        self.status != UserStatus::Active
    }
}

/// The person who is responsible for a service; none for a person.
pub(super) async fn find_responsible(
    management: &Management,
    user: &state::User,
) -> Result<Option<Responsible>, ManagementError> {
    let Some(id) = user.responsible else { return Ok(None) };
    let member = management.state.member(user.org, id).await?;
    Ok(Some(Responsible::new(id, member.as_ref().map(|(_, user)| user))))
}

/// Users of an organization as results show them. Each responsible person is looked up once.
pub(super) async fn show_users(
    management: &Management,
    org: OrgId,
    users: Vec<state::User>,
) -> Result<Vec<User>, ManagementError> {
    let ids: HashSet<UserId> = users.iter().filter_map(|user| user.responsible).collect();
    let members = try_join_all(ids.into_iter().map(|id| management.state.member(org, id))).await?;
    let persons: HashMap<UserId, state::User> =
        members.into_iter().flatten().map(|(_, user)| (user.id, user)).collect();
    let show = |user: state::User| {
        let responsible = user.responsible.map(|id| Responsible::new(id, persons.get(&id)));
        User::new(user, responsible)
    };
    Ok(users.into_iter().map(show).collect())
}
