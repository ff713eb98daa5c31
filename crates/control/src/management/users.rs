//! Users: create, list, permit, suspend, resume, remove.

use super::actor::AuditActor;
use super::audited_change::{Target, apply_change, apply_change_at};
use super::authorization::{Access, authorize};
use super::cursor::cursor_sealer;
use super::operands::{find_org, find_user};
use super::patches::update_user;
use super::session_end::end_memberships;
use super::user::{find_responsible, show_users};
use super::{Actor, Management, ManagementError, User, UserUpdate, operands};
use domain::clock::Micros;
use domain::identity::{OrgId, Permission, UserId, Voucher};
use domain::management_token::TokenScope;
use domain::names;
use domain::page::{Page, PageQuery};
use domain::plan_name::PlanName;
use state::{self, Change};

/// Permissions and plan of a new user.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UserGrants {
    /// Its permissions.
    pub permissions: Vec<Permission>,
    /// Its plan.
    pub plan: Option<PlanName>,
}

impl From<Vec<Permission>> for UserGrants {
    fn from(permissions: Vec<Permission>) -> Self {
        Self { permissions, plan: None }
    }
}

/// Record of a new user.
#[derive(Debug)]
pub(super) struct NewUser<'a> {
    pub(super) org: OrgId,
    /// Email address, or name of a service; validated.
    pub(super) email: &'a str,
    pub(super) grants: UserGrants,
    pub(super) vouched_by: Option<Voucher>,
    /// The person who is responsible for a service.
    pub(super) responsible: Option<UserId>,
}

/// Creates a user with this email address and these grants. For the operator; without a plan also for administrators of
/// the organization, where they manage people, who give permissions that they have.
///
/// # Errors
/// [`ManagementError::InvalidEmail`], [`ManagementError::NoOrg`], [`ManagementError::NoPlan`],
/// [`ManagementError::PeopleOfProvider`], [`ManagementError::GrantExceeds`];
/// [`ManagementError::Taken`] when a user of the organization has this address.
pub async fn create_user(
    management: &Management,
    actor: &Actor,
    org: &str,
    email: &str,
    grants: UserGrants,
    now: Micros,
) -> Result<User, ManagementError> {
    let access = match grants.plan {
        None => Access::People(org, Some(TokenScope::UsersWrite)),
        Some(_) => Access::OrgOperator(org, TokenScope::UsersWrite),
    };
    let by = authorize(management, actor, access, now).await?;
    let email = names::validate_email(email)?;
    let org = find_org(management, org).await?;
    operands::check_creation(actor, &org)?;
    let new = NewUser { org: org.id, email: &email, grants, vouched_by: None, responsible: None };
    add_user(management, new, by).await.map(|user| User::new(user, None))
}

/// Adds a user to an organization. Signing in calls it too, for users that an identity provider vouches for.
pub(super) async fn add_user(
    management: &Management,
    new: NewUser<'_>,
    by: AuditActor<'_>,
) -> Result<state::User, ManagementError> {
    let NewUser { org, email, grants: UserGrants { permissions, plan }, vouched_by, responsible } = new;
    operands::check_plan(management, plan.as_ref())?;
    let user = state::User {
        permissions: operands::normalize_permissions(permissions),
        vouched_by,
        responsible,
        plan,
        ..state::User::new(UserId::generate(), org, email, by.now)
    };
    let path = if user.is_service() { "user.create/service" } else { "user.create" };
    apply_change_at(management, "user.create", path, Target::of_user(&user), Change::CreateUser(user.clone()), by)
        .await?;
    Ok(user)
}

/// Lists all users of an organization in the order of their creation, removed ones too, a page at a time. For its
/// administrators.
///
/// # Errors
/// [`ManagementError::NoOrg`], [`ManagementError::Cursor`].
pub async fn list_users(
    management: &Management,
    actor: &Actor,
    org: &str,
    page: &PageQuery,
    now: Micros,
) -> Result<Page<User>, ManagementError> {
    authorize(management, actor, Access::OrgAdmin(org, TokenScope::UsersRead), now).await?;
    let org = find_org(management, org).await?.id;
    let sealer = cursor_sealer(management, &("users", org)).await?;
    let from = sealer.open(page.cursor.as_deref())?.unwrap_or_default();
    let Page { items, next } = management.state.page_of_users(org, from, page.limit.get()).await?;
    sealer.seal(Page { items: show_users(management, org, items).await?, next })
}

/// Shows one user of an organization. For its administrators.
///
/// # Errors
/// [`ManagementError::NoOrg`], [`ManagementError::NoUser`].
pub async fn show_user(
    management: &Management,
    actor: &Actor,
    org: &str,
    user: &str,
    now: Micros,
) -> Result<User, ManagementError> {
    authorize(management, actor, Access::OrgAdmin(org, TokenScope::UsersRead), now).await?;
    let user = find_user(management, find_org(management, org).await?.id, user).await?;
    let responsible = find_responsible(management, &user).await?;
    Ok(User::new(user, responsible))
}

/// Replaces all permissions of a user by sorted ones, takes back a withdrawal, and notes who vouches for the user.
pub(super) async fn set_permissions(
    management: &Management,
    user: state::User,
    permissions: Vec<Permission>,
    vouched_by: Option<Voucher>,
    by: AuditActor<'_>,
) -> Result<state::User, ManagementError> {
    if user.withdrawn.is_some() {
        // Those that a withdrawal did not get to, because the process died: they must not come back with the user.
        end_memberships(management, &user, by).await?;
    }
    let change = Change::permit_user(user.org, user.id, permissions.clone(), vouched_by.clone());
    apply_change(management, "user.permit", Target::of_user(&user), change, by).await?;
    Ok(state::User { permissions, withdrawn: None, vouched_by: vouched_by.or(user.vouched_by), ..user })
}

/// Suspends a user: all requests with the user's keys are refused from the next one on, what is open ends, and the
/// web sessions end. The keys stay. For administrators of the organization, who may not suspend the last person
/// among them that may act; the operator may.
///
/// # Errors
/// [`ManagementError::NoOrg`], [`ManagementError::NoUser`], [`ManagementError::LastAdmin`].
pub async fn suspend_user(
    management: &Management,
    actor: &Actor,
    org: &str,
    user: &str,
    now: Micros,
) -> Result<User, ManagementError> {
    let update = UserUpdate { suspended: Some(true), ..UserUpdate::default() };
    update_user(management, actor, org, user, update, now).await
}

/// Resumes a suspended user: requests with the user's keys are admitted again. Web sessions do not come back. For
/// administrators of the organization.
///
/// # Errors
/// [`ManagementError::NoOrg`], [`ManagementError::NoUser`].
pub async fn resume_user(
    management: &Management,
    actor: &Actor,
    org: &str,
    user: &str,
    now: Micros,
) -> Result<User, ManagementError> {
    let update = UserUpdate { suspended: Some(false), ..UserUpdate::default() };
    update_user(management, actor, org, user, update, now).await
}

/// Checks that an actor may add, permit and remove people, for the pages that offer it.
///
/// # Errors
/// [`ManagementError::NotAllowed`], [`ManagementError::PeopleOfProvider`].
pub async fn check_people_access(
    management: &Management,
    actor: &Actor,
    org: &str,
    now: Micros,
) -> Result<(), ManagementError> {
    authorize(management, actor, Access::People(org, Some(TokenScope::UsersWrite)), now).await.map(drop)
}

/// Removes a user for good: their keys are refused and their web sessions end. For the operator; administrators of the
/// organization remove people, where they manage them, but not the last of themselves.
///
/// # Errors
/// [`ManagementError::NoOrg`], [`ManagementError::NoUser`], [`ManagementError::PeopleOfProvider`],
/// [`ManagementError::LastAdmin`]; [`ManagementError::NotPerson`] for a service, of an administrator.
pub async fn remove_user(
    management: &Management,
    actor: &Actor,
    org: &str,
    user: &str,
    now: Micros,
) -> Result<User, ManagementError> {
    let by = authorize(management, actor, Access::People(org, Some(TokenScope::UsersWrite)), now).await?;
    let user = find_user(management, find_org(management, org).await?.id, user).await?;
    operands::require_person_of(actor, &user)?;
    let responsible = find_responsible(management, &user).await?;
    let change = Change::RemoveUser { org: user.org, user: user.id, at: now };
    apply_change(management, "user.remove", Target::of_user(&user), change, by).await?;
    Ok(User::new(state::User { removed: Some(now), ..user }, responsible))
}
