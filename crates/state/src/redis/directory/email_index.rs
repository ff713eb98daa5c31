//! Indexes of users over all organizations, by which a sign-in finds a person's users: by email address, and by the person for
//! whom a provider has vouched.
//!
//! - Each address and each person has a set of (organization, user), in a hash slot of its own. An entry is added before the
//!   user is written and stays when the user is removed: it only proposes, and every look-up reads the users themselves.
//! - Users that an earlier version created are added to the sets of their addresses once, by the first gateway that needs the index.

use std::sync::atomic::Ordering;

use redis::{FromRedisValue as _, Value, cmd};

use super::records::{Directory, read_each};
use crate::redis::record_names::orgs_slot;
use crate::{Org, User};
use domain::identity::{OrgId, PersonId, UserId, Voucher};
use redis_client::{CommandError, hash_slot};

impl Directory {
    /// The users with an email address, in all organizations, removed ones too.
    pub(crate) async fn list_users_by_email(&self, email: &str) -> Result<Vec<User>, CommandError> {
        self.update_email_index().await?;
        let mut users = self.read_user_set(&self.shared.names.users_by_email(email)).await?;
        users.retain(|user| user.email == email);
        Ok(users)
    }

    /// The users for whom a provider has vouched as a person, in all organizations.
    pub(crate) async fn list_users_by_person(&self, person: &PersonId) -> Result<Vec<User>, CommandError> {
        let mut users = self.read_user_set(&self.shared.names.users_by_person(person)).await?;
        users.retain(|user| user.vouched_by.as_ref().is_some_and(|voucher| voucher.person == *person));
        Ok(users)
    }

    /// The users of a set, in the order of their creation.
    async fn read_user_set(&self, name: &str) -> Result<Vec<User>, CommandError> {
        let mut query = cmd("SMEMBERS");
        query.arg(name);
        let members = self.client.send(hash_slot(name), &query).await?;
        let members = Vec::<String>::from_redis_value(members).map_err(|_| CommandError::UnexpectedReply)?;
        let reads = members.into_iter().map(async |member| match parse_member(&member) {
            Some((org, user)) => Ok(self.read_member(org, user).await?.map(|(_, user)| user)),
            None => Err(CommandError::UnexpectedReply),
        });
        let mut users: Vec<User> = read_each(reads).await?;
        users.sort_by_key(|user| (user.created, user.id));
        Ok(users)
    }

    /// The organization with a name.
    pub(crate) async fn find_org_by_name(&self, name: &str) -> Result<Option<Org>, CommandError> {
        let id = self.read_field(orgs_slot(), &self.shared.names.names(), name).await?;
        match id.map(|id| id.parse().map_err(|_| CommandError::UnexpectedReply)).transpose()? {
            Some(id) => self.find_org(id).await,
            None => Ok(None),
        }
    }

    /// Adds a user to the indexes.
    pub(crate) async fn index_user(&self, user: &User) -> Result<(), CommandError> {
        if let Some(voucher) = &user.vouched_by {
            self.index_person(user.org, user.id, voucher).await?;
        }
        self.index_email(user).await
    }

    async fn index_email(&self, user: &User) -> Result<(), CommandError> {
        self.add_to_user_set(&self.shared.names.users_by_email(&user.email), user.org, user.id).await
    }

    /// Adds a user to the set of the person for whom a provider vouches.
    pub(super) async fn index_person(&self, org: OrgId, user: UserId, voucher: &Voucher) -> Result<(), CommandError> {
        self.add_to_user_set(&self.shared.names.users_by_person(&voucher.person), org, user).await
    }

    async fn add_to_user_set(&self, name: &str, org: OrgId, user: UserId) -> Result<(), CommandError> {
        let mut query = cmd("SADD");
        query.arg(name).arg(format!("{org} {user}"));
        self.client.send(hash_slot(name), &query).await.map(drop)
    }

    /// Adds the users that an earlier version created. This is done once for a deployment, and may be done by several
    /// gateways at the same time.
    async fn update_email_index(&self) -> Result<(), CommandError> {
        if self.shared.emails_indexed.load(Ordering::Acquire) {
            return Ok(());
        }
        let done = self.shared.names.emails_indexed();
        let mut query = cmd("EXISTS");
        query.arg(&done);
        if self.client.send(orgs_slot(), &query).await? == Value::Int(0) {
            for org in self.list_orgs().await? {
                let users = self.list_users(org.id).await?;
                read_each(users.into_iter().map(async |user| self.index_email(&user).await.map(Some))).await?;
            }
            let mut query = cmd("SET");
            query.arg(&done).arg(1);
            self.client.send(orgs_slot(), &query).await?;
        }
        self.shared.emails_indexed.store(true, Ordering::Release);
        Ok(())
    }
}

fn parse_member(member: &str) -> Option<(OrgId, UserId)> {
    let (org, user) = member.split_once(' ')?;
    Some((org.parse().ok()?, user.parse().ok()?))
}
