//! Indexes of users over all organizations, by which a sign-in finds a person's users: by email address, and by the
//! person for whom a provider has vouched.
//!
//! - Each address and each person has a set of (organization, user), in a hash slot of its own. An entry is added
//!   before the user is written and stays when the user is removed: it only proposes, and every look-up reads the users
//!   themselves.

use redis::cmd;

use super::orgs::Orgs;
use super::transactions::{Transactions, parse_id, read_each};
use crate::{User, session_quota_digest};
use domain::identity::{OrgId, PersonId, UserId, Voucher};
use domain::key::KeyId;
use redis_client::CommandError;

/// Indexes of users, over the transactions of one thread.
#[derive(Clone, Copy)]
pub(crate) struct UserIndex<'a>(pub(crate) &'a Transactions);

impl UserIndex<'_> {
    /// The users with an email address, in all organizations, removed ones too.
    pub(crate) async fn list_by_email(self, email: &str) -> Result<Vec<User>, CommandError> {
        let mut users = self.read_set(&self.0.shared.names.users_by_email(email)).await?;
        users.retain(|user| user.email == email);
        Ok(users)
    }

    /// The users for whom a provider has vouched as a person, in all organizations.
    pub(crate) async fn list_by_person(self, person: &PersonId) -> Result<Vec<User>, CommandError> {
        let mut users = self.read_set(&self.0.shared.names.users_by_person(person)).await?;
        users.retain(|user| user.vouched_by.as_ref().is_some_and(|voucher| voucher.person == *person));
        Ok(users)
    }

    /// The user with this id in another organization than this one, as far as the indexes have it: by this email
    /// address, or by the digest of its session quota key, which depends on the id alone.
    pub(crate) async fn find_elsewhere(
        self,
        org: OrgId,
        id: UserId,
        email: Option<&str>,
    ) -> Result<Option<User>, CommandError> {
        let by = self.0.read_field(&self.0.shared.names.digest(&session_quota_digest(id)), "key").await?;
        if let Some(key) = by.map(parse_id::<KeyId>).transpose()?
            && let Some(found) = self.0.read_user(key.tag(), id).await?.filter(|found| found.org != org)
        {
            return Ok(Some(found));
        }
        let Some(email) = email else { return Ok(None) };
        let members = self.read_members(&self.0.shared.names.users_by_email(email)).await?;
        let elsewhere = members.into_iter().filter(|member| member.0 != org && member.1 == id);
        let found: Vec<User> = read_each(elsewhere.map(async |(org, id)| self.find(org, id).await)).await?;
        Ok(found.into_iter().next())
    }

    /// The users of a set, in the order of their creation.
    async fn read_set(self, name: &str) -> Result<Vec<User>, CommandError> {
        let members = self.read_members(name).await?;
        let reads = members.into_iter().map(async |(org, user)| self.find(org, user).await);
        let mut users: Vec<User> = read_each(reads).await?;
        users.sort_by_key(|user| (user.created, user.id));
        Ok(users)
    }

    async fn read_members(self, name: &str) -> Result<Vec<(OrgId, UserId)>, CommandError> {
        let members: Vec<String> = self.0.client.query(cmd("SMEMBERS").arg(name)).await?;
        members.iter().map(|member| parse_member(member).ok_or(CommandError::UnexpectedReply)).collect()
    }

    async fn find(self, org: OrgId, user: UserId) -> Result<Option<User>, CommandError> {
        match Orgs(self.0).find_tag(org).await? {
            Some(tag) => self.0.read_user(tag, user).await,
            None => Ok(None),
        }
    }

    /// Adds a user to the indexes.
    pub(crate) async fn add(self, user: &User) -> Result<(), CommandError> {
        if let Some(voucher) = &user.vouched_by {
            self.add_person(user.org, user.id, voucher).await?;
        }
        self.add_to_set(&self.0.shared.names.users_by_email(&user.email), user.org, user.id).await
    }

    /// Adds a user to the set of the person for whom a provider vouches.
    pub(super) async fn add_person(self, org: OrgId, user: UserId, voucher: &Voucher) -> Result<(), CommandError> {
        self.add_to_set(&self.0.shared.names.users_by_person(&voucher.person), org, user).await
    }

    async fn add_to_set(self, name: &str, org: OrgId, user: UserId) -> Result<(), CommandError> {
        self.0.client.query(cmd("SADD").arg(name).arg(format!("{org} {user}"))).await
    }
}

fn parse_member(member: &str) -> Option<(OrgId, UserId)> {
    let (org, user) = member.split_once(' ')?;
    Some((org.parse().ok()?, user.parse().ok()?))
}
