//! Reading the directory, for management.

use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use redis::{Cmd, FromRedisValue as _, cmd};

use crate::identity::{OrgId, UserId};
use crate::key::{KeyDigest, KeyId, OrgTag};
use crate::state::redis::Redis;
use crate::state::redis::client::CommandError;
use crate::state::redis::decide::key_cache::CachedKey;
use crate::state::redis::record_codec::{Fields, StoredKey};
use crate::state::redis::record_names;
use crate::state::{Key, Org, User};

/// Records that are read at a time.
const AT_ONCE: usize = 256;

impl Redis {
    /// All organizations, in the order of their creation.
    pub(in crate::state::redis) async fn list_orgs(&self) -> Result<Vec<Org>, CommandError> {
        let record_names = &self.shared.record_names;
        let ids: Vec<OrgId> = self.read_ids(record_names::orgs_slot(), "LRANGE", &record_names.orgs()).await?;
        let orgs = ids.into_iter().map(async |id| match self.find_tag(id).await? {
            Some(tag) => self.read_org(tag).await,
            None => Ok(None),
        });
        self.read_each(orgs).await
    }

    /// All users of an organization, in the order of their creation.
    pub(in crate::state::redis) async fn list_users(&self, org: OrgId) -> Result<Vec<User>, CommandError> {
        let Some(tag) = self.find_tag(org).await? else { return Ok(Vec::new()) };
        let ids: Vec<UserId> = self
            .read_ids(record_names::hash_slot(tag.as_str()), "LRANGE", &self.shared.record_names.users(tag))
            .await?;
        self.read_each(ids.into_iter().map(async |id| self.read_user(tag, id).await)).await
    }

    /// All keys of an organization, in the order of their creation; session quota keys are left out.
    pub(in crate::state::redis) async fn list_keys(&self, org: OrgId) -> Result<Vec<Key>, CommandError> {
        let Some(tag) = self.find_tag(org).await? else { return Ok(Vec::new()) };
        let ids: Vec<KeyId> =
            self.read_ids(record_names::hash_slot(tag.as_str()), "LRANGE", &self.shared.record_names.keys(tag)).await?;
        let keys = ids.into_iter().map(async |id| {
            let key = self.read_key(id).await?.map(|stored| stored.key);
            Ok(key.filter(|key| !key.session_quota_key))
        });
        self.read_each(keys).await
    }

    /// The key that has, or had, this digest.
    pub(in crate::state::redis) async fn find_key(&self, digest: &KeyDigest) -> Result<Option<KeyId>, CommandError> {
        let Some(id) = self.find_key_id(digest).await? else { return Ok(None) };
        Ok(self.read_key(id).await?.map(|stored| stored.key.id))
    }

    /// The keys of a user.
    pub(in crate::state::redis) async fn keys_of(&self, tag: OrgTag, user: UserId) -> Result<Vec<KeyId>, CommandError> {
        self.read_ids(record_names::hash_slot(tag.as_str()), "SMEMBERS", &self.shared.record_names.keys_of(tag, user))
            .await
    }

    pub(in crate::state::redis) async fn read_org(&self, tag: OrgTag) -> Result<Option<Org>, CommandError> {
        let fields = self.fields(record_names::hash_slot(tag.as_str()), self.shared.record_names.org(tag)).await?;
        fields.map(|fields| fields.org().map(|stored| stored.org)).transpose()
    }

    pub(in crate::state::redis) async fn read_user(
        &self,
        tag: OrgTag,
        user: UserId,
    ) -> Result<Option<User>, CommandError> {
        let fields =
            self.fields(record_names::hash_slot(tag.as_str()), self.shared.record_names.user(tag, user)).await?;
        fields.map(|fields| fields.user()).transpose()
    }

    pub(in crate::state::redis) async fn find_org(&self, id: OrgId) -> Result<Option<Org>, CommandError> {
        match self.find_tag(id).await? {
            Some(tag) => self.read_org(tag).await,
            None => Ok(None),
        }
    }

    pub(in crate::state::redis) async fn find_user_by_email(
        &self,
        org: OrgId,
        email: &str,
    ) -> Result<Option<User>, CommandError> {
        let Some(tag) = self.find_tag(org).await? else { return Ok(None) };
        let id = self
            .read_field(record_names::hash_slot(tag.as_str()), &self.shared.record_names.emails(tag), email)
            .await?;
        let Some(id) = id else { return Ok(None) };
        let user = self.read_user(tag, id.parse().map_err(|_| CommandError::UnexpectedReply)?).await?;
        Ok(user.filter(|user| user.removed.is_none()))
    }

    pub(in crate::state::redis) async fn read_member(
        &self,
        org: OrgId,
        user: UserId,
    ) -> Result<Option<(Org, User)>, CommandError> {
        let Some(tag) = self.find_tag(org).await? else { return Ok(None) };
        let (org, user) = (self.read_org(tag).await?, self.read_user(tag, user).await?);
        Ok(org.zip(user))
    }

    pub(in crate::state::redis) async fn read_key(&self, key: KeyId) -> Result<Option<StoredKey>, CommandError> {
        let fields =
            self.fields(record_names::hash_slot(key.tag().as_str()), self.shared.record_names.key(key)).await?;
        fields.map(|fields| fields.key()).transpose()
    }

    async fn fields(&self, slot: u16, name: String) -> Result<Option<Fields>, CommandError> {
        let mut get = cmd("HGETALL");
        get.arg(name);
        Fields::read(self.servers.send(slot, &get).await?)
    }

    /// All members of a list or set, as ids.
    pub(in crate::state::redis) async fn read_ids<T: std::str::FromStr>(
        &self,
        slot: u16,
        how: &str,
        name: &str,
    ) -> Result<Vec<T>, CommandError> {
        let mut get: Cmd = cmd(how);
        get.arg(name);
        if how == "LRANGE" {
            get.arg(0).arg(-1);
        }
        let members = self.servers.send(slot, &get).await?;
        let members = Vec::<String>::from_redis_value(members).map_err(|_| CommandError::UnexpectedReply)?;
        members.into_iter().map(|member| member.parse().map_err(|_| CommandError::UnexpectedReply)).collect()
    }

    /// Reads many records, some at a time, in their order; those that are gone are left out.
    async fn read_each<T>(
        &self,
        reads: impl Iterator<Item = impl Future<Output = Result<Option<T>, CommandError>>>,
    ) -> Result<Vec<T>, CommandError> {
        let found: Vec<Option<T>> = stream::iter(reads).buffered(AT_ONCE).try_collect().await?;
        Ok(found.into_iter().flatten().collect())
    }

    /// A key as a decision would know it, found by its id.
    pub(in crate::state::redis) async fn read_cached_key(&self, id: KeyId) -> Result<Option<CachedKey>, CommandError> {
        let Some((key, org)) = self.read_records(id).await? else { return Ok(None) };
        Ok(Some(self.shared.cached_key(&key.digest, &key, &org, None)))
    }
}
