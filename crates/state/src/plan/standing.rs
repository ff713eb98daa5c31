//! Standing of the person by whose rights a change is made: a precondition, checked in the transaction of the change.
//!
//! - The person is an active user of the organization, and an administrator of it, unless the change is one of a key of
//!   their own. So of two administrators who suspend one another at once, the second is none any more.
//! - An administrator who suspends or removes their own account, or gives up the role, leaves another one: an
//!   organization keeps the last administrator. Another's account they change as an administrator, who stays.
//! - A person gives no permission that the person does not have. What a user has already may stay.
//! - A suspended organization creates nothing.
//! - The key of an exchange is made only while its service is active, in an organization that is not suspended.

use super::Records;
use crate::change::Target;
use crate::{Change, ChangeError, FederationRule, Key, Org, User, UserPatch};
use domain::identity::{OrgId, Permission, UserId};
use domain::key::KeyId;
use domain::key::policy::Field;

/// The permission of administrators of an organization: all its users, keys and sessions, not only their own.
pub const ADMIN: &str = "org:admin";

/// Subject of a change by a person.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Subject {
    /// A key of this user.
    KeyOf(UserId),
    /// A key that exists, of a user who is to be looked up.
    Key(KeyId),
    /// A user of the organization.
    User(OrgId, UserId),
}

impl User {
    /// Returns whether the user has the permission of administrators. Suspended users keep their permissions.
    pub fn is_admin(&self) -> bool {
        self.permissions.iter().any(|permission| permission.as_str() == ADMIN)
    }

    /// Returns whether the user administers the organization and can sign in: a service cannot.
    pub(crate) fn is_active_admin(&self) -> bool {
        !self.is_service() && self.is_active() && self.is_admin()
    }
}

impl Change {
    /// The change by the rights of a person, if it is one of a key or a user; others, such as those of sessions and
    /// management tokens, are looked at whenever the session or the token is used.
    #[must_use]
    pub fn by_person(self, person: UserId) -> Self {
        match self.subject() {
            Some(_) => Self::ByPerson { person, change: Box::new(self) },
            None => self,
        }
    }

    /// The key or the user that is changed or created; none of other changes.
    pub(crate) fn subject(&self) -> Option<Subject> {
        match (self.as_made(), self.target()) {
            (Self::CreateKey { key, .. }, _) => Some(Subject::KeyOf(key.user)),
            (Self::CreateUser(user), _) => Some(Subject::User(user.org, user.id)),
            (_, Some(Target::Key(key))) => Some(Subject::Key(key)),
            (_, Some(Target::User(org, user))) => Some(Subject::User(org, user)),
            _ => None,
        }
    }

    /// Returns whether the person ceases with it to be an administrator who may act.
    fn ends_role_of(&self, person: UserId) -> bool {
        match self.as_made() {
            Self::UpdateUser { user, patch, .. } if *user == person => {
                let lacks_role = |list: &[Permission]| list.iter().all(|permission| permission.as_str() != ADMIN);
                matches!(patch.suspended, Field::Set(_))
                    || patch.permitted.as_ref().is_some_and(|permitted| lacks_role(&permitted.permissions))
            }
            Self::RemoveUser { user, .. } => *user == person,
            _ => false,
        }
    }
}

/// Requires that a person may make a change of a key or a user. A key that is missing is left to the change.
///
/// # Errors
/// [`ChangeError::NotAllowed`], [`ChangeError::OrgSuspended`], [`ChangeError::GrantExceeds`],
/// [`ChangeError::LastAdmin`].
pub(crate) fn require_person<R: Records>(person: UserId, change: &Change, records: &R) -> Result<(), R::Error> {
    let (org, owner) = match (change.subject(), change.as_made()) {
        (Some(Subject::User(org, _)), _) => (org, None),
        (Some(Subject::KeyOf(owner)), Change::CreateKey { key, .. }) => (key.org, Some(owner)),
        (Some(Subject::Key(key)), _) => match records.key(key)? {
            Some(Key { org, user, .. }) => (org, Some(user)),
            None => return Ok(()),
        },
        _ => return Ok(()),
    };
    let org = records.org(org)?.ok_or(ChangeError::NoOrg(org))?;
    let user = records.user(org.id, person)?;
    check_person(person, user.as_ref(), &org, owner, change)?;
    let given = given_permissions(change, records)?;
    let has = |permission: &Permission| user.as_ref().is_some_and(|user| user.permissions.contains(permission));
    if let Some(exceeding) = given.into_iter().find(|permission| !has(permission)) {
        return Err(ChangeError::GrantExceeds(exceeding).into());
    }
    let is_last = change.ends_role_of(person)
        && user.is_some_and(|user| user.is_active_admin())
        && !records.has_other_admin(org.id, person)?;
    if is_last { Err(ChangeError::LastAdmin(person).into()) } else { Ok(()) }
}

/// The permissions that a user gets by a change, and does not have before.
fn given_permissions<R: Records>(change: &Change, records: &R) -> Result<Vec<Permission>, R::Error> {
    match change.as_made() {
        Change::CreateUser(user) => Ok(user.permissions.clone()),
        Change::UpdateUser { org, user, patch: UserPatch { permitted: Some(permitted), .. } } => {
            let before = records.user(*org, *user)?.map(|user| user.permissions).unwrap_or_default();
            Ok(permitted.permissions.iter().filter(|permission| !before.contains(permission)).cloned().collect())
        }
        _ => Ok(Vec::new()),
    }
}

/// Requires that the service of a rule may get the key of an exchange.
///
/// # Errors
/// [`ChangeError::OrgSuspended`], [`ChangeError::NotAllowed`].
pub(crate) fn require_service<R: Records>(rule: &FederationRule, records: &R) -> Result<(), R::Error> {
    let org = records.org(rule.org)?.ok_or(ChangeError::NoOrg(rule.org))?;
    if org.suspended {
        return Err(ChangeError::OrgSuspended(org.id).into());
    }
    let user = records.user(org.id, rule.user)?;
    Ok(check_service(rule.user, user.as_ref(), &org)?)
}

/// Checks that a person may make a change of the keys of `owner`, or, without one, of users.
///
/// # Errors
/// [`ChangeError::NotAllowed`], [`ChangeError::OrgSuspended`].
fn check_person(
    person: UserId,
    found: Option<&User>,
    org: &Org,
    owner: Option<UserId>,
    change: &Change,
) -> Result<(), ChangeError> {
    let is_own = owner == Some(person);
    let may = |user: &User| user.org == org.id && user.is_active() && (is_own || user.is_admin());
    if !found.is_some_and(may) {
        return Err(ChangeError::NotAllowed(person));
    }
    let is_open = change.as_made().withdraws() || !org.suspended;
    if is_open { Ok(()) } else { Err(ChangeError::OrgSuspended(org.id)) }
}

/// Checks that a service may get the key of an exchange.
///
/// # Errors
/// [`ChangeError::NotAllowed`].
fn check_service(service: UserId, found: Option<&User>, org: &Org) -> Result<(), ChangeError> {
    let may = |user: &User| user.org == org.id && user.is_active() && !org.suspended;
    if found.is_some_and(may) { Ok(()) } else { Err(ChangeError::NotAllowed(service)) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Key, Permitted, UserPatch};
    use domain::clock::Micros;
    use domain::key::{KeyDigest, OrgTag};

    fn org() -> Org {
        Org::new(OrgId::generate(), OrgTag::generate().unwrap(), "acme", Micros(1))
    }

    fn user(org: &Org, permissions: &[&str]) -> User {
        let permissions = permissions.iter().map(|name| name.parse().unwrap()).collect();
        User { permissions, ..User::new(UserId::generate(), org.id, "ada@acme.example", Micros(1)) }
    }

    fn key_of(org: &Org, user: UserId) -> Change {
        let key = Key::new(KeyId::generate(org.tag).unwrap(), org.id, user, "ci", Micros(1));
        Change::CreateKey { key, digest: KeyDigest::of(b"secret") }
    }

    #[test]
    fn person_changes_own_keys_and_an_administrator_all() {
        let org = org();
        let (ada, ann) = (user(&org, &[ADMIN]), user(&org, &["q:r"]));
        let check = |person: &User, owner| check_person(person.id, Some(person), &org, owner, &key_of(&org, ann.id));
        assert!(check(&ada, Some(ann.id)).is_ok() && check(&ada, None).is_ok() && check(&ann, Some(ann.id)).is_ok());
        for refused in [check(&ann, Some(ada.id)), check(&ann, None)] {
            assert!(matches!(refused, Err(ChangeError::NotAllowed(_))));
        }
    }

    #[test]
    fn person_who_is_not_active_changes_nothing() {
        let org = org();
        let ada = user(&org, &[ADMIN]);
        let at = Some(Micros(2));
        for gone in [
            User { suspended: at, ..ada.clone() },
            User { withdrawn: at, ..ada.clone() },
            User { removed: at, ..ada.clone() },
            User { org: OrgId::generate(), ..ada.clone() },
        ] {
            assert!(check_person(ada.id, Some(&gone), &org, Some(ada.id), &key_of(&org, ada.id)).is_err());
            assert!(check_service(ada.id, Some(&gone), &org).is_err());
        }
        assert!(check_person(ada.id, None, &org, Some(ada.id), &key_of(&org, ada.id)).is_err());
    }

    #[test]
    fn suspended_organization_withdraws_and_creates_nothing() {
        let org = Org { suspended: true, ..org() };
        let ada = user(&org, &[ADMIN]);
        let check = |change: &Change| check_person(ada.id, Some(&ada), &org, Some(ada.id), change);
        assert!(check(&key_of(&org, ada.id)).is_err());
        assert!(check(&Change::RevokeKey { key: KeyId::generate(org.tag).unwrap(), at: Micros(1) }).is_ok());
        assert!(check_service(ada.id, Some(&ada), &org).is_err());
    }

    #[test]
    fn changes_of_keys_and_users_are_by_a_person() {
        let org = org();
        let ada = user(&org, &[ADMIN]);
        let permitted = Permitted { permissions: Vec::new(), vouched_by: None };
        let patch = UserPatch { permitted: Some(permitted), ..UserPatch::default() };
        let permit = Change::UpdateUser { org: org.id, user: ada.id, patch };
        let suspend = Change::suspend_user(org.id, ada.id, Some(Micros(1)), false);
        assert!(suspend.ends_role_of(ada.id) && !suspend.ends_role_of(UserId::generate()));
        assert!(permit.ends_role_of(ada.id), "the role is among the permissions");
        for change in [permit, suspend, key_of(&org, ada.id)] {
            assert!(matches!(change.by_person(ada.id), Change::ByPerson { .. }));
        }
        let end = Change::EndSession { session: domain::identity::SessionId::generate() };
        assert!(matches!(end.by_person(ada.id), Change::EndSession { .. }));
    }
}
