//! The lists of keys: which keys an organization has, which of them are revoked, and which of a user's are not.
//!
//! - The keys of an organization, and those of each user, are a sorted set by the time of their creation. A revoked key is in
//!   a second one of its organization by the time of its revocation. It leaves them when its time ([`crate::Bounds::keep_revoked`]) is over; its record and
//!   its digest stay, so that its use is still refused, and recorded, as that of a revoked key.
//! - Of each user there is a set of the keys that are not revoked, whose size bounds the keys of people.
//! - Every step touches at most [`BATCH`] keys, so that no script and no command takes long however many there are.
//!
//! Earlier versions wrote a list of ids instead of the sorted sets, and left revoked keys in the set of their user. Both
//! are brought up to date when they are needed: the list before keys are listed, the set when it seems to be full.

use redis::{FromRedisValue as _, Value, cmd};

use super::commit_error::CommitError;
use super::key_index::{list_key, unlist_key};
use super::records::{Directory, parse_ids, read_each};
use super::transaction::{Check, Record, Transaction};
use crate::Key;
use crate::redis::record_names::org_slot;
use domain::clock::{self, Micros};
use domain::identity::{OrgId, UserId};
use domain::key::{KeyId, OrgTag};
use redis_client::CommandError;

/// Keys that one script or command touches: tens of microseconds of the server's time.
const BATCH: usize = 64;

impl Directory {
    /// All keys of an organization that are listed, in the order of their creation; no session quota keys.
    pub(crate) async fn list_keys(&self, org: OrgId) -> Result<Vec<Key>, CommandError> {
        let Some(tag) = self.find_tag(org).await? else { return Ok(Vec::new()) };
        self.update_key_list(tag).await?;
        let mut keys = Vec::new();
        let mut last = None;
        loop {
            let ids = self.read_key_ids(tag, last, BATCH).await?;
            let Some(id) = ids.last() else { return Ok(keys) };
            last = Some(*id);
            keys.extend(read_each(ids.into_iter().map(async |id| self.read_listed_key(id).await)).await?);
        }
    }

    async fn read_listed_key(&self, id: KeyId) -> Result<Option<Key>, CommandError> {
        Ok(self.read_key(id).await?.map(|stored| stored.key).filter(|key| !key.session_quota_key))
    }

    /// Ids of at most `count` keys after one of them, in the order of their creation; without one, from the first.
    pub(crate) async fn read_key_ids(
        &self,
        tag: OrgTag,
        after: Option<KeyId>,
        count: usize,
    ) -> Result<Vec<KeyId>, CommandError> {
        let index = self.shared.names.listed_keys(tag, None);
        let first = match after {
            Some(after) => self.rank_after(tag, after).await?,
            None => 0,
        };
        let mut query = cmd("ZRANGE");
        query.arg(index).arg(first).arg(first + count - 1);
        parse_ids(self.client.send(org_slot(tag), &query).await?)
    }

    /// The rank of the key after this one; when it has left the list, of the first one that was created later.
    async fn rank_after(&self, tag: OrgTag, key: KeyId) -> Result<usize, CommandError> {
        let mut query = cmd("ZRANK");
        query.arg(self.shared.names.listed_keys(tag, None)).arg(key.as_str());
        let rank = self.client.send(org_slot(tag), &query).await?;
        if let Some(rank) = Option::<usize>::from_redis_value(rank).map_err(|_| CommandError::UnexpectedReply)? {
            return Ok(rank + 1);
        }
        let created = self.read_key(key).await?.map_or(0, |stored| stored.key.created.0);
        self.count_up_to(tag, &self.shared.names.listed_keys(tag, None), created).await
    }

    /// Members of a sorted set of an organization with scores up to this one.
    async fn count_up_to(&self, tag: OrgTag, name: &str, score: u64) -> Result<usize, CommandError> {
        let mut query = cmd("ZCOUNT");
        query.arg(name).arg("-inf").arg(score);
        let count = self.client.send(org_slot(tag), &query).await?;
        usize::from_redis_value(count).map_err(|_| CommandError::UnexpectedReply)
    }

    /// Brings the list of an organization's keys up to date: takes over the list of an earlier version, and takes out the
    /// keys whose time is over.
    pub(crate) async fn update_key_list(&self, tag: OrgTag) -> Result<(), CommandError> {
        while self.take_over_list(tag).await? {}
        while self.retire_keys(tag).await? {}
        Ok(())
    }

    /// Takes over the first keys of the list that an earlier version wrote. Returns false when there are none.
    async fn take_over_list(&self, tag: OrgTag) -> Result<bool, CommandError> {
        let list = self.shared.names.keys(tag);
        let mut query = cmd("LRANGE");
        query.arg(&list).arg(0).arg(BATCH - 1);
        let ids: Vec<KeyId> = parse_ids(self.client.send(org_slot(tag), &query).await?)?;
        let Some(first) = ids.first() else { return Ok(false) };
        let stored = read_each(ids.iter().copied().map(async |id| self.read_key(id).await)).await?;
        let mut transaction = self.transaction::<()>();
        let list = transaction.record(list);
        // Another gateway may be taking over the same keys.
        transaction.check(Check::First(list, first.as_str()), ());
        for stored in stored {
            self.add_to_lists(&mut transaction, &stored.key);
        }
        transaction.trim(list, ids.len());
        self.commit_without_replicas(org_slot(tag), transaction).await?;
        Ok(true)
    }

    /// Adds a key to the lists of its organization and its user.
    pub(crate) fn add_to_lists<F>(&self, transaction: &mut Transaction<F>, key: &Key) {
        // A session quota key is found by its user, and in no list.
        if key.session_quota_key {
            return;
        }
        let (names, tag, id) = (&self.shared.names, key.id.tag(), key.id.as_str());
        list_key(transaction, names, key);
        match key.revoked {
            Some(at) => self.add_to_revoked(transaction, key, at),
            None => {
                let keys_of = transaction.record(names.keys_of(tag, key.user));
                transaction.add(keys_of, id);
            }
        }
    }

    /// Moves a key from the keys of its user that are not revoked to the revoked ones.
    pub(super) fn add_to_revoked<F>(&self, transaction: &mut Transaction<F>, key: &Key, at: Micros) {
        let (names, tag, id) = (&self.shared.names, key.id.tag(), key.id.as_str());
        let [revoked, keys_of] =
            [names.revoked_keys(tag), names.keys_of(tag, key.user)].map(|name| transaction.record(name));
        transaction.add_scored(revoked, at.0, id);
        transaction.remove(keys_of, id);
    }

    /// Takes some keys out of the lists whose time is over. Returns false when there are none.
    async fn retire_keys(&self, tag: OrgTag) -> Result<bool, CommandError> {
        let (names, revoked) = (&self.shared.names, self.shared.names.revoked_keys(tag));
        let mut query = cmd("ZRANGEBYSCORE");
        query.arg(&revoked).arg("-inf").arg(self.revoked_up_to().0).arg("LIMIT").arg(0).arg(BATCH);
        let ids: Vec<KeyId> = parse_ids(self.client.send(org_slot(tag), &query).await?)?;
        if ids.is_empty() {
            return Ok(false);
        }
        let keys = read_each(ids.iter().copied().map(async |id| self.read_key(id).await)).await?;
        let mut transaction = self.transaction::<()>();
        keys.iter().for_each(|stored| unlist_key(&mut transaction, names, &stored.key));
        let revoked = transaction.record(revoked);
        ids.iter().for_each(|id| transaction.remove_scored(revoked, id.as_str()));
        self.commit_without_replicas(org_slot(tag), transaction).await?;
        Ok(true)
    }

    /// The time up to which a key was revoked that is no longer listed; the epoch while the bounds were not set.
    fn revoked_up_to(&self) -> Micros {
        let bounds = self.shared.bounds.load();
        bounds.as_ref().as_ref().map_or(Micros(0), |bounds| clock::now().before(bounds.keep_revoked))
    }

    /// Takes the keys out of the set of a user's keys that do not belong there, because an earlier version left them, or a
    /// failover lost their removal. Returns true when there were some.
    pub(super) async fn prune_keys_of(&self, tag: OrgTag, user: UserId) -> Result<bool, CommandError> {
        let name = self.shared.names.keys_of(tag, user);
        let (mut cursor, mut pruned) = (String::from("0"), false);
        loop {
            let mut query = cmd("SSCAN");
            query.arg(&name).arg(&cursor).arg("COUNT").arg(BATCH);
            let reply = self.client.send(org_slot(tag), &query).await?;
            let (next, ids) = <(String, Value)>::from_redis_value(reply).map_err(|_| CommandError::UnexpectedReply)?;
            pruned |= self.prune(tag, user, parse_ids(ids)?).await?;
            if next == "0" {
                return Ok(pruned);
            }
            cursor = next;
        }
    }

    /// Takes those of these keys out of the set of a user's keys that are revoked, or no API keys.
    async fn prune(&self, tag: OrgTag, user: UserId, ids: Vec<KeyId>) -> Result<bool, CommandError> {
        let keys = read_each(ids.into_iter().map(async |id| self.read_key(id).await)).await?;
        let mut transaction = self.transaction::<CommitError>();
        for key in keys.into_iter().map(|stored| stored.key) {
            match key.revoked {
                Some(at) => self.add_to_revoked(&mut transaction, &key, at),
                None if key.session_quota_key => {
                    let keys_of: Record = transaction.record(self.shared.names.keys_of(tag, user));
                    transaction.remove(keys_of, key.id.as_str());
                }
                None => {}
            }
        }
        let prunes = !transaction.is_empty();
        if prunes {
            self.commit_without_replicas(org_slot(tag), transaction).await?;
        }
        Ok(prunes)
    }
}
