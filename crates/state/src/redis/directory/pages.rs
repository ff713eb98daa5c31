//! Pages of the directory's lists.

use std::str::FromStr;

use redis::{FromRedisValue as _, Value, cmd};

use super::records::{Directory, parse_ids, read_each};
use crate::cursor_secret::CursorSecret;
use crate::redis::record_names::{org_slot, orgs_slot};
use crate::{Key, KeyList, KeyPosition, Org, User};
use domain::clock::Micros;
use domain::identity::OrgId;
use domain::key::{KeyId, OrgTag};
use domain::page::Page;
use redis_client::CommandError;

impl Directory {
    /// The secret that the cursors of lists are sealed with: read once. The first gateway
    /// that needs it stores the fresh one.
    pub(crate) async fn read_cursor_secret(&self, fresh: &CursorSecret) -> Result<CursorSecret, CommandError> {
        let read = async {
            let name = self.shared.names.cursor_secret();
            let mut set = cmd("SET");
            // Kept as it is when there is one: all gateways have to agree.
            set.arg(&name).arg(fresh.as_bytes()).arg("NX");
            self.client.send(orgs_slot(), &set).await?;
            let mut get = cmd("GET");
            let bytes = self.client.send(orgs_slot(), get.arg(&name)).await?;
            let bytes = Vec::<u8>::from_redis_value(bytes).map_err(|_| CommandError::UnexpectedReply)?;
            let bytes = <[u8; 32]>::try_from(bytes).map_err(|_| CommandError::UnexpectedReply)?;
            Ok(CursorSecret::from_bytes(bytes))
        };
        self.shared.cursor_secret.get_or_try_init(|| read).await.cloned()
    }

    /// Some organizations. See [`crate::State::page_of_orgs`].
    pub(crate) async fn page_of_orgs(&self, from: u64, limit: usize) -> Result<Page<Org, u64>, CommandError> {
        let Page { items, next } = self.read_ids(orgs_slot(), &self.shared.names.orgs(), from, limit).await?;
        let orgs = read_each(items.into_iter().map(async |id| self.find_org(id).await)).await?;
        Ok(Page { items: orgs, next })
    }

    /// Some users of an organization. See [`crate::State::page_of_users`].
    pub(crate) async fn page_of_users(
        &self,
        org: OrgId,
        from: u64,
        limit: usize,
    ) -> Result<Page<User, u64>, CommandError> {
        let Some(tag) = self.find_tag(org).await? else { return Ok(Page { items: Vec::new(), next: None }) };
        let Page { items, next } = self.read_ids(org_slot(tag), &self.shared.names.users(tag), from, limit).await?;
        let users = read_each(items.into_iter().map(async |id| self.read_user(tag, id).await)).await?;
        Ok(Page { items: users, next })
    }

    /// Some ids of a list from which none is ever taken, from a position on.
    async fn read_ids<T: FromStr>(
        &self,
        slot: u16,
        list: &str,
        from: u64,
        limit: usize,
    ) -> Result<Page<T, u64>, CommandError> {
        // Redis counts positions in signed numbers; no list is as long as this.
        let (from, limit) = (from.min(u64::from(u32::MAX)), limit as u64);
        let mut query = cmd("LRANGE");
        // Both ends are included: one id more tells whether another page follows.
        query.arg(list).arg(from).arg(from + limit);
        let mut ids = parse_ids(self.client.send(slot, &query).await?)?;
        let next = (ids.len() as u64 > limit).then_some(from + limit);
        ids.truncate(usize::try_from(limit).unwrap_or(usize::MAX));
        Ok(Page { items: ids, next })
    }

    /// Some keys. See [`crate::State::page_of_keys`].
    pub(crate) async fn page_of_keys(
        &self,
        list: KeyList,
        mut after: Option<KeyPosition>,
        limit: usize,
    ) -> Result<Page<Key, KeyPosition>, CommandError> {
        let tag = self.find_tag(list.org).await?;
        let mut keys = Vec::new();
        while let Some(tag) = tag.filter(|_| keys.len() <= limit) {
            let wanted = limit + 1 - keys.len();
            let positions = self.read_key_positions(tag, list, after, wanted).await?;
            keys.extend(self.read_keys(positions.iter().map(|position| position.id).collect()).await?);
            after = positions.last().copied();
            // Fewer keys than positions: some were removed between the two reads, and the next ones take their places.
            if positions.len() < wanted {
                break;
            }
        }
        Ok(Page::cut(keys, limit, |key| key.into()))
    }

    /// The records of these keys, in their order. Keys that are gone are left out.
    pub(super) async fn read_keys(&self, ids: Vec<KeyId>) -> Result<Vec<Key>, CommandError> {
        read_each(ids.into_iter().map(async |id| Ok(self.read_key(id).await?.map(|stored| stored.key)))).await
    }

    /// At most `count` positions of a list behind a position.
    async fn read_key_positions(
        &self,
        tag: OrgTag,
        list: KeyList,
        after: Option<KeyPosition>,
        count: usize,
    ) -> Result<Vec<KeyPosition>, CommandError> {
        self.update_key_list(tag).await?;
        Ok(self.run_key_page(tag, list, after, count).await?.unwrap_or_default())
    }

    async fn run_key_page(
        &self,
        tag: OrgTag,
        list: KeyList,
        after: Option<KeyPosition>,
        count: usize,
    ) -> Result<Option<Vec<KeyPosition>>, CommandError> {
        let names = &self.shared.names;
        let index = names.listed_keys(tag, list.owner);
        let created = after.map(|after| after.created.0.to_string()).unwrap_or_default();
        let id = after.as_ref().map_or("", |after| after.id.as_str());
        let first = if list.newest_first { "newest" } else { "oldest" };
        let count = count.to_string();
        let arguments = [first, &created, id, &count].map(str::as_bytes);
        let script = &self.shared.scripts.key_page;
        let reply = self.client.run(org_slot(tag), script, &[index.as_bytes()], &arguments).await?;
        decode_positions(reply)
    }
}

/// Ids and times alternating; nil when the index lacks keys.
fn decode_positions(reply: Value) -> Result<Option<Vec<KeyPosition>>, CommandError> {
    if reply == Value::Nil {
        return Ok(None);
    }
    let pairs = Vec::<(String, f64)>::from_redis_value(reply).map_err(|_| CommandError::UnexpectedReply)?;
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "microseconds, below 2^53")]
    let position = |(id, created): (String, f64)| {
        let id = id.parse().map_err(|_| CommandError::UnexpectedReply)?;
        Ok(KeyPosition { created: Micros(created as u64), id })
    };
    pairs.into_iter().map(position).collect::<Result<_, _>>().map(Some)
}
