//! Records that plans rest on, as a driver has them.

use crate::{ChangeError, Key, Org, Session, User};
use domain::identity::{OrgId, SessionId, UserId};
use domain::key::KeyId;

/// Records at the moment of a change; none where there is no such record.
///
/// - A driver that has to read first returns its own error, and plans anew with the record.
pub(crate) trait Records {
    type Error: From<ChangeError>;

    fn org(&self, id: OrgId) -> Result<Option<Org>, Self::Error>;
    /// A user of this organization, removed or not.
    fn user(&self, org: OrgId, id: UserId) -> Result<Option<User>, Self::Error>;
    /// A key, also one that is no longer listed.
    fn key(&self, id: KeyId) -> Result<Option<Key>, Self::Error>;
    fn session(&self, id: SessionId) -> Result<Option<Session>, Self::Error>;
    /// Returns whether the organization has an active administrator other than this person.
    fn has_other_admin(&self, org: OrgId, person: UserId) -> Result<bool, Self::Error>;
}
