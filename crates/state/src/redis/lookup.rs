//! Lookups: reads of the directory and of rate limits, each within the time-out for reads.

use super::Redis;
use super::unavailable::read;
use crate::{CursorSecret, Key, KeyList, KeyPosition, Org, Session, Unavailable, User};
use domain::clock::Micros;
use domain::identity::{OrgId, PersonId, SessionId, UserId};
use domain::key::{KeyDigest, KeyId};
use domain::page::Page;
use domain::quota::RateLimitStatus;
use domain::session::TokenDigest;

impl Redis {
    /// All organizations, in the order of their creation.
    ///
    /// # Errors
    /// [`Unavailable`], as of all reads.
    pub async fn orgs(&self) -> Result<Vec<Org>, Unavailable> {
        read(self.directory.list_orgs()).await
    }

    /// All users of an organization, removed ones too, in the order of their creation.
    ///
    /// # Errors
    /// [`Unavailable`].
    pub async fn users(&self, org: OrgId) -> Result<Vec<User>, Unavailable> {
        read(self.directory.list_users(org)).await
    }

    /// One organization.
    ///
    /// # Errors
    /// [`Unavailable`].
    pub async fn org(&self, id: OrgId) -> Result<Option<Org>, Unavailable> {
        read(self.directory.find_org(id)).await
    }

    /// The user with an email address. See [`crate::State::user_by_email`].
    ///
    /// # Errors
    /// [`Unavailable`].
    pub async fn user_by_email(&self, org: OrgId, email: &str) -> Result<Option<User>, Unavailable> {
        read(self.directory.find_user_by_email(org, email)).await
    }

    /// An organization and one of its users. See [`crate::State::member`].
    ///
    /// # Errors
    /// [`Unavailable`].
    pub async fn member(&self, org: OrgId, user: UserId) -> Result<Option<(Org, User)>, Unavailable> {
        read(self.directory.read_member(org, user)).await
    }

    /// All keys of an organization, revoked ones too, in the order of their creation; no session quota keys.
    ///
    /// # Errors
    /// [`Unavailable`].
    pub async fn keys(&self, org: OrgId) -> Result<Vec<Key>, Unavailable> {
        read(self.directory.list_keys(org)).await
    }

    /// Some organizations. See [`crate::State::page_of_orgs`].
    ///
    /// # Errors
    /// [`Unavailable`].
    pub async fn page_of_orgs(&self, from: u64, limit: usize) -> Result<Page<Org, u64>, Unavailable> {
        read(self.directory.page_of_orgs(from, limit)).await
    }

    /// Some users of an organization. See [`crate::State::page_of_users`].
    ///
    /// # Errors
    /// [`Unavailable`].
    pub async fn page_of_users(&self, org: OrgId, from: u64, limit: usize) -> Result<Page<User, u64>, Unavailable> {
        read(self.directory.page_of_users(org, from, limit)).await
    }

    /// Some keys. See [`crate::State::page_of_keys`].
    ///
    /// # Errors
    /// [`Unavailable`].
    pub async fn page_of_keys(
        &self,
        list: KeyList,
        after: Option<KeyPosition>,
        limit: usize,
    ) -> Result<Page<Key, KeyPosition>, Unavailable> {
        read(self.directory.page_of_keys(list, after, limit)).await
    }

    /// The secret that the cursors of lists are sealed with.
    ///
    /// # Errors
    /// [`Unavailable`].
    pub async fn cursor_secret(&self) -> Result<CursorSecret, Unavailable> {
        let fresh = CursorSecret::generate().map_err(|error| {
            tracing::error!(%error, "the operating system gave no randomness for the secret of cursors");
            Unavailable::ErrorReply
        })?;
        read(self.directory.read_cursor_secret(&fresh)).await
    }

    /// The key that has, or had, this digest.
    ///
    /// # Errors
    /// [`Unavailable`].
    pub async fn key_of(&self, digest: &KeyDigest) -> Result<Option<KeyId>, Unavailable> {
        read(self.directory.find_key(digest)).await
    }

    /// One key.
    ///
    /// # Errors
    /// [`Unavailable`].
    pub async fn key(&self, id: KeyId) -> Result<Option<Key>, Unavailable> {
        Ok(read(self.directory.read_key(id)).await?.map(|stored| stored.key))
    }

    /// The rate-limit status of a key. Takes nothing.
    ///
    /// # Errors
    /// [`Unavailable`].
    pub async fn rate_limit_status(&self, id: KeyId, now: Micros) -> Result<Option<RateLimitStatus>, Unavailable> {
        read(self.decider.rate_limit_status(id, now)).await
    }

    /// The users with an email address. See [`crate::State::users_by_email`].
    ///
    /// # Errors
    /// [`Unavailable`].
    pub async fn users_by_email(&self, email: &str) -> Result<Vec<User>, Unavailable> {
        read(self.directory.list_users_by_email(email)).await
    }

    /// The users for whom a provider has vouched as a person. See [`crate::State::users_by_person`].
    ///
    /// # Errors
    /// [`Unavailable`].
    pub async fn users_by_person(&self, person: &PersonId) -> Result<Vec<User>, Unavailable> {
        read(self.directory.list_users_by_person(person)).await
    }

    /// The organization with a name. See [`crate::State::org_by_name`].
    ///
    /// # Errors
    /// [`Unavailable`].
    pub async fn org_by_name(&self, name: &str) -> Result<Option<Org>, Unavailable> {
        read(self.directory.find_org_by_name(name)).await
    }

    /// The sessions of an organization. See [`crate::State::sessions_of_org`].
    ///
    /// # Errors
    /// [`Unavailable`].
    pub async fn sessions_of_org(&self, org: OrgId, now: Micros) -> Result<Vec<Session>, Unavailable> {
        read(self.directory.list_sessions_of_org(org, now)).await
    }

    /// The sessions of a person. See [`crate::State::sessions_of_person`].
    ///
    /// # Errors
    /// [`Unavailable`].
    pub async fn sessions_of_person(&self, person: &PersonId) -> Result<Vec<Session>, Unavailable> {
        read(self.directory.list_sessions_of_person(person)).await
    }

    /// The live session with this digest. See [`crate::State::session`].
    ///
    /// # Errors
    /// [`Unavailable`], within the deadline of decisions.
    pub async fn session(&self, digest: &TokenDigest, now: Micros) -> Result<Option<Session>, Unavailable> {
        self.directory.use_session(digest, now).await
    }

    /// The live session with this id. See [`crate::State::session_by_id`].
    ///
    /// # Errors
    /// [`Unavailable`].
    pub async fn session_by_id(&self, id: SessionId, now: Micros) -> Result<Option<Session>, Unavailable> {
        read(self.directory.find_session(id, now)).await
    }

    /// All live sessions, oldest first. See [`crate::State::sessions`].
    ///
    /// # Errors
    /// [`Unavailable`].
    pub async fn sessions(&self, now: Micros) -> Result<Vec<Session>, Unavailable> {
        read(self.directory.list_sessions(now)).await
    }
}
