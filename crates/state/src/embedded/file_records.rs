//! The records of the file in the transaction of a change, for its plan: with the changes before it in the same
//! transaction.

use rusqlite::{Connection, OptionalExtension as _};

use super::sql::{classify_error, exists};
use super::{load, session_rows};
use crate::plan::Records;
use crate::{ChangeError, Key, Org, Session, User};
use domain::identity::{OrgId, SessionId, UserId};
use domain::key::KeyId;

/// Another active administrator of the organization of a user. Permissions are a comma-separated text.
const OTHER_ADMIN: &str = "
SELECT 1 FROM users WHERE org = ?1 AND id <> ?2 AND removed IS NULL AND withdrawn IS NULL AND suspended IS NULL
AND responsible IS NULL AND ',' || permissions || ',' LIKE '%,org:admin,%'";

/// Records of the file.
pub(super) struct FileRecords<'a>(pub(super) &'a Connection);

impl Records for FileRecords<'_> {
    type Error = ChangeError;

    fn org(&self, id: OrgId) -> Result<Option<Org>, ChangeError> {
        load::read_org(self.0, id).map_err(classify_error)
    }

    fn user(&self, org: OrgId, id: UserId) -> Result<Option<User>, ChangeError> {
        Ok(load::read_user(self.0, id).map_err(classify_error)?.filter(|user| user.org == org))
    }

    fn key(&self, id: KeyId) -> Result<Option<Key>, ChangeError> {
        load::read_key(self.0, id).map_err(classify_error)
    }

    fn session(&self, id: SessionId) -> Result<Option<Session>, ChangeError> {
        session_rows::find(self.0, id).optional().map_err(classify_error)
    }

    fn has_other_admin(&self, org: OrgId, person: UserId) -> Result<bool, ChangeError> {
        exists(self.0, OTHER_ADMIN, [org.to_string(), person.to_string()])
    }
}
