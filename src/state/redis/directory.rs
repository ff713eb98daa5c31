//! Reading the directory, for management.

use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use redis::{Cmd, FromRedisValue as _, cmd};

use super::Redis;
use super::known::Known;
use super::layout;
use super::servers::Failure;
use super::stored::{Fields, StoredKey};
use crate::identity::{OrgId, UserId};
use crate::key::{KeyDigest, KeyId, OrgTag};
use crate::state::{Key, Org, User};

/// Records that are read at a time.
const AT_ONCE: usize = 256;

impl Redis {
    /// All organizations, in the order of their creation.
    pub(super) async fn all_orgs(&self) -> Result<Vec<Org>, Failure> {
        let layout = &self.shared.layout;
        let ids: Vec<OrgId> = self.list(layout::orgs_slot(), "LRANGE", &layout.orgs()).await?;
        let orgs = ids.into_iter().map(async |id| match self.tag(id).await? {
            Some(tag) => self.stored_org(tag).await,
            None => Ok(None),
        });
        self.each(orgs).await
    }

    /// All users of an organization, in the order of their creation.
    pub(super) async fn all_users(&self, org: OrgId) -> Result<Vec<User>, Failure> {
        let Some(tag) = self.tag(org).await? else { return Ok(Vec::new()) };
        let ids: Vec<UserId> = self.list(layout::slot(tag.as_str()), "LRANGE", &self.shared.layout.users(tag)).await?;
        self.each(ids.into_iter().map(async |id| self.stored_user(tag, id).await)).await
    }

    /// All keys of an organization, in the order of their creation; the seats among them are left out.
    pub(super) async fn all_keys(&self, org: OrgId) -> Result<Vec<Key>, Failure> {
        let Some(tag) = self.tag(org).await? else { return Ok(Vec::new()) };
        let ids: Vec<KeyId> = self.list(layout::slot(tag.as_str()), "LRANGE", &self.shared.layout.keys(tag)).await?;
        let keys = ids.into_iter().map(async |id| {
            let key = self.stored_key(id).await?.map(|stored| stored.key);
            Ok(key.filter(|key| !key.seat))
        });
        self.each(keys).await
    }

    /// The key that has, or had, this digest.
    pub(super) async fn key_with(&self, digest: &KeyDigest) -> Result<Option<KeyId>, Failure> {
        let Some(id) = self.indexed(digest).await? else { return Ok(None) };
        Ok(self.stored_key(id).await?.map(|stored| stored.key.id))
    }

    /// The keys of a user.
    pub(super) async fn keys_of(&self, tag: OrgTag, user: UserId) -> Result<Vec<KeyId>, Failure> {
        self.list(layout::slot(tag.as_str()), "SMEMBERS", &self.shared.layout.keys_of(tag, user)).await
    }

    pub(super) async fn stored_org(&self, tag: OrgTag) -> Result<Option<Org>, Failure> {
        let fields = self.fields(layout::slot(tag.as_str()), self.shared.layout.org(tag)).await?;
        fields.map(|fields| fields.org().map(|stored| stored.org)).transpose()
    }

    pub(super) async fn stored_user(&self, tag: OrgTag, user: UserId) -> Result<Option<User>, Failure> {
        let fields = self.fields(layout::slot(tag.as_str()), self.shared.layout.user(tag, user)).await?;
        fields.map(|fields| fields.user()).transpose()
    }

    pub(super) async fn one_org(&self, id: OrgId) -> Result<Option<Org>, Failure> {
        match self.tag(id).await? {
            Some(tag) => self.stored_org(tag).await,
            None => Ok(None),
        }
    }

    pub(super) async fn stored_user_by_email(&self, org: OrgId, email: &str) -> Result<Option<User>, Failure> {
        let Some(tag) = self.tag(org).await? else { return Ok(None) };
        let id = self.field(layout::slot(tag.as_str()), &self.shared.layout.emails(tag), email).await?;
        let Some(id) = id else { return Ok(None) };
        let user = self.stored_user(tag, id.parse().map_err(|_| Failure::Nonsense)?).await?;
        Ok(user.filter(|user| user.removed.is_none()))
    }

    pub(super) async fn stored_member(&self, org: OrgId, user: UserId) -> Result<Option<(Org, User)>, Failure> {
        let Some(tag) = self.tag(org).await? else { return Ok(None) };
        let (org, user) = (self.stored_org(tag).await?, self.stored_user(tag, user).await?);
        Ok(org.zip(user))
    }

    pub(super) async fn stored_key(&self, key: KeyId) -> Result<Option<StoredKey>, Failure> {
        let fields = self.fields(layout::slot(key.tag().as_str()), self.shared.layout.key(key)).await?;
        fields.map(|fields| fields.key()).transpose()
    }

    async fn fields(&self, slot: u16, name: String) -> Result<Option<Fields>, Failure> {
        let mut get = cmd("HGETALL");
        get.arg(name);
        Fields::read(self.servers.send(slot, &get).await?)
    }

    /// All members of a list or set, as ids.
    pub(super) async fn list<T: std::str::FromStr>(&self, slot: u16, how: &str, name: &str) -> Result<Vec<T>, Failure> {
        let mut get: Cmd = cmd(how);
        get.arg(name);
        if how == "LRANGE" {
            get.arg(0).arg(-1);
        }
        let members = self.servers.send(slot, &get).await?;
        let members = Vec::<String>::from_redis_value(members).map_err(|_| Failure::Nonsense)?;
        members.into_iter().map(|member| member.parse().map_err(|_| Failure::Nonsense)).collect()
    }

    /// Reads many records, some at a time, in their order; those that are gone are left out.
    async fn each<T>(
        &self,
        reads: impl Iterator<Item = impl Future<Output = Result<Option<T>, Failure>>>,
    ) -> Result<Vec<T>, Failure> {
        let found: Vec<Option<T>> = stream::iter(reads).buffered(AT_ONCE).try_collect().await?;
        Ok(found.into_iter().flatten().collect())
    }

    /// A key as a decision would know it, found by its id.
    pub(super) async fn known_by_id(&self, id: KeyId) -> Result<Option<Known>, Failure> {
        let Some((key, org)) = self.records(id).await? else { return Ok(None) };
        Ok(Some(self.shared.known_of(&key.digest, &key, &org, None)))
    }
}
