//! Standing of the person by whose rights a change is made, as the file has it in the transaction of the change.

use rusqlite::Connection;

use super::load;
use super::sql::{classify_error, exists};
use crate::standing::{Subject, check_person, check_service};
use crate::{Change, ChangeError, Key, Org, OrgPolicy};
use domain::identity::{OrgId, UserId};
use domain::key::KeyId;

/// Another active administrator of the organization of a user. Permissions are a comma-separated text.
const OTHER_ADMIN: &str = "
SELECT 1 FROM users WHERE org = ?1 AND id <> ?2 AND removed IS NULL AND withdrawn IS NULL AND suspended IS NULL
AND responsible IS NULL AND ',' || permissions || ',' LIKE '%,org:admin,%'";

/// Requires that a person may make a change of a key or a user. A key that is missing is left to the change.
///
/// # Errors
/// [`ChangeError::NotAllowed`], [`ChangeError::LastAdmin`].
pub(super) fn require_person(sql: &Connection, person: UserId, change: &Change) -> Result<(), ChangeError> {
    let (org, owner) = match (change.subject(), change.as_made()) {
        (Some(Subject::User(org, _)), _) => (org, None),
        (Some(Subject::KeyOf(owner)), Change::CreateKey { key, .. }) => (key.org, Some(owner)),
        (Some(Subject::Key(key)), _) => match load::read_key(sql, key).map_err(classify_error)? {
            Some(Key { org, user, .. }) => (org, Some(user)),
            None => return Ok(()),
        },
        _ => return Ok(()),
    };
    let user = load::read_user(sql, person).map_err(classify_error)?;
    let org = read_org(sql, org)?;
    check_person(person, user.as_ref(), &org, owner, change)?;
    let is_last = change.suspends(person)
        && user.is_some_and(|user| user.is_active_admin())
        && !exists(sql, OTHER_ADMIN, [org.id.to_string(), person.to_string()])?;
    if is_last { Err(ChangeError::LastAdmin(person)) } else { Ok(()) }
}

/// Requires that a service may get the key of an exchange.
///
/// # Errors
/// [`ChangeError::NotAllowed`].
pub(super) fn require_service(sql: &Connection, org: OrgId, service: UserId) -> Result<(), ChangeError> {
    let found = load::read_user(sql, service).map_err(classify_error)?;
    check_service(service, found.as_ref(), &read_org(sql, org)?)
}

/// Requires that a new key expires within the policy of its organization. A session quota key never expires.
pub(super) fn require_expiry(sql: &Connection, key: &Key) -> Result<(), ChangeError> {
    if key.session_quota_key {
        return Ok(());
    }
    let expires = key.policy.as_deref().and_then(|policy| policy.expires);
    Ok(read_org(sql, key.org)?.policy.check_new_key(expires, key.created)?)
}

/// The policy of a key's organization.
pub(super) fn policy_of(sql: &Connection, key: KeyId) -> Result<OrgPolicy, ChangeError> {
    let key = load::read_key(sql, key).map_err(classify_error)?.ok_or(ChangeError::NoKey(key))?;
    Ok(read_org(sql, key.org)?.policy)
}

/// An organization that exists.
pub(super) fn read_org(sql: &Connection, org: OrgId) -> Result<Org, ChangeError> {
    load::read_org(sql, org).map_err(classify_error)?.ok_or(ChangeError::NoOrg(org))
}
