//! Reads of the standing of persons and services. See [`crate::standing`].

use super::commit_error::CommitError;
use super::orgs::Orgs;
use super::standing::Standing;
use super::transactions::Transactions;
use super::users::Users;
use crate::redis::record_codec::StoredUser;
use crate::standing::{Subject, check_person, check_service};
use crate::{Change, ChangeError, FederationRule};
use domain::identity::{OrgId, UserId};
use domain::key::OrgTag;
use redis_client::CommandError;

/// Users that are read at a time.
const USERS_AT_A_TIME: usize = 100;

/// Standings, over the transactions of one thread.
#[derive(Clone, Copy)]
pub(super) struct Standings<'a>(pub(super) &'a Transactions);

impl Standings<'_> {
    /// Reads the standing of a person for a change of a key or a user; none of a change of a key that is missing.
    ///
    /// # Errors
    /// [`ChangeError::NotAllowed`], [`ChangeError::LastAdmin`].
    pub(super) async fn of_person(self, person: UserId, change: &Change) -> Result<Option<Standing>, CommitError> {
        let (tag, owner) = match (change.subject(), change.as_made()) {
            (Some(Subject::User(org, _)), _) => (Orgs(self.0).require_tag(org).await?, None),
            (Some(Subject::KeyOf(owner)), Change::CreateKey { key, .. }) => (key.id.tag(), Some(owner)),
            (Some(Subject::Key(key)), _) => match self.0.read_key(key).await? {
                Some(stored) => (key.tag(), Some(stored.key.user)),
                None => return Ok(None),
            },
            _ => return Ok(None),
        };
        let org = self.0.read_org(tag).await?.ok_or(ChangeError::NotAllowed(person))?;
        let stored = Users(self.0).find_stored(tag, org.id, person).await?;
        check_person(person, stored.as_ref().map(|stored| &stored.user), &org, owner, change)?;
        let stored = stored.ok_or(ChangeError::NotAllowed(person))?;
        let mut users = vec![(person, stored.version)];
        if change.suspends(person) && stored.user.is_active_admin() {
            let other = self.another_admin(tag, org.id, person).await?.ok_or(ChangeError::LastAdmin(person))?;
            users.push((other.user.id, other.version));
        }
        Ok(Some(Standing { tag, users, is_open: !change.as_made().withdraws() }))
    }

    /// Reads the standing of the service of a rule for an exchange.
    ///
    /// # Errors
    /// [`ChangeError::NotAllowed`].
    pub(super) async fn of_service(self, rule: &FederationRule) -> Result<Standing, CommitError> {
        let refused = || ChangeError::NotAllowed(rule.user);
        let tag = Orgs(self.0).require_tag(rule.org).await?;
        let org = self.0.read_org(tag).await?.ok_or_else(refused)?;
        let stored = Users(self.0).find_stored(tag, org.id, rule.user).await?;
        check_service(rule.user, stored.as_ref().map(|stored| &stored.user), &org)?;
        let stored = stored.ok_or_else(refused)?;
        Ok(Standing { tag, users: vec![(rule.user, stored.version)], is_open: true })
    }

    /// An active administrator of the organization other than this one.
    async fn another_admin(self, tag: OrgTag, org: OrgId, person: UserId) -> Result<Option<StoredUser>, CommandError> {
        let mut from = Some(0);
        while let Some(position) = from {
            let page = Users(self.0).page(org, position, USERS_AT_A_TIME).await?;
            for other in page.items.iter().filter(|other| other.id != person && other.is_active_admin()) {
                // Read again with its version.
                let stored = Users(self.0).find_stored(tag, org, other.id).await?;
                if let Some(stored) = stored.filter(|stored| stored.user.is_active_admin()) {
                    return Ok(Some(stored));
                }
            }
            from = page.next;
        }
        Ok(None)
    }
}
