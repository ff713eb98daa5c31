//! Index of users by their email addresses, over all organizations: a sign-in finds a person's users by it.
//!
//! - Each address has a set of (organization, user), in a hash slot by the address. An entry is added before the user is
//!   created and stays when the user is removed: it only proposes, and every look-up reads the users themselves.
//! - Users that an earlier version created are added once, by the first gateway that needs the index.

use std::sync::atomic::Ordering;

use redis::{FromRedisValue as _, Value, cmd};

use super::records::{Directory, read_each};
use crate::identity::{OrgId, UserId};
use crate::state::redis::client::{CommandError, hash_slot};
use crate::state::redis::record_names::orgs_slot;
use crate::state::{Org, User};

impl Directory {
    /// The users with an email address, in all organizations, removed ones too.
    pub(in crate::state::redis) async fn list_users_by_email(&self, email: &str) -> Result<Vec<User>, CommandError> {
        self.update_email_index().await?;
        let name = self.shared.names.users_by_email(email);
        let mut query = cmd("SMEMBERS");
        query.arg(&name);
        let members = self.client.send(hash_slot(&name), &query).await?;
        let members = Vec::<String>::from_redis_value(members).map_err(|_| CommandError::UnexpectedReply)?;
        let reads = members.into_iter().map(async |member| match parse_member(&member) {
            Some((org, user)) => Ok(self.read_member(org, user).await?.map(|(_, user)| user)),
            None => Err(CommandError::UnexpectedReply),
        });
        let mut users: Vec<User> = read_each(reads).await?;
        users.retain(|user| user.email == email);
        users.sort_by_key(|user| (user.created, user.id));
        Ok(users)
    }

    /// The organization with a name.
    pub(in crate::state::redis) async fn find_org_by_name(&self, name: &str) -> Result<Option<Org>, CommandError> {
        let id = self.read_field(orgs_slot(), &self.shared.names.names(), name).await?;
        match id.map(|id| id.parse().map_err(|_| CommandError::UnexpectedReply)).transpose()? {
            Some(id) => self.find_org(id).await,
            None => Ok(None),
        }
    }

    /// Adds a user to the index.
    pub(in crate::state::redis) async fn index_email(&self, user: &User) -> Result<(), CommandError> {
        let name = self.shared.names.users_by_email(&user.email);
        let mut query = cmd("SADD");
        query.arg(&name).arg(format!("{} {}", user.org, user.id));
        self.client.send(hash_slot(&name), &query).await.map(drop)
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
