//! The lists of keys: which keys an organization has, which of them are revoked, and which of a user's are not.
//!
//! - The keys of an organization, and those of each user, are a sorted set by the time of their creation. A revoked key
//!   is in a second one of its organization by the time of its revocation. It leaves them when its time
//!   ([`crate::Bounds::keep_revoked`]) is over; its record and its digest stay, so that its use is still
//!   refused, and recorded, as that of a revoked key.
//! - Of each user there is a set of the keys that are not revoked, whose size bounds the keys of people.
//! - Every step touches at most [`BATCH`] keys, so that no script and no command takes long however many there are.
//! - A failover may lose the removal of a revoked key from the set of its user, which is pruned when it seems to be
//!   full.

use redis::{FromRedisValue as _, cmd};

use super::check::Record;
use super::commit_error::CommitError;
use super::orgs::Orgs;
use super::transaction::Transaction;
use super::transactions::{Transactions, parse_id, parse_ids, read_each};
use crate::federation::LISTED_AFTER_END;
use crate::redis::record_names::RecordNames;
use crate::redis::slot_numbers::org_slot;
use crate::{Key, KeyList as ListOfKeys, KeyPosition};
use domain::clock::Micros;
use domain::identity::{OrgId, UserId};
use domain::key::{KeyId, OrgTag};
use domain::page::Page;
use redis_client::CommandError;

/// Keys that one script or command touches: tens of microseconds of the server's time.
pub(super) const BATCH: usize = 64;

/// Lists of keys, over the transactions of one thread.
#[derive(Clone, Copy)]
pub(crate) struct KeyList<'a>(pub(crate) &'a Transactions);

impl KeyList<'_> {
    /// All keys of an organization that are listed, in the order of their creation; no session quota keys.
    pub(crate) async fn list(self, org: OrgId) -> Result<Vec<Key>, CommandError> {
        let Some(tag) = Orgs(self.0).find_tag(org).await? else { return Ok(Vec::new()) };
        self.retire_all(tag).await?;
        let mut keys = Vec::new();
        let mut last = None;
        loop {
            let ids = self.read_ids(tag, last, BATCH).await?;
            let Some(id) = ids.last() else { return Ok(keys) };
            last = Some(*id);
            keys.extend(read_each(ids.into_iter().map(async |id| self.read_listed(id).await)).await?);
        }
    }

    async fn read_listed(self, id: KeyId) -> Result<Option<Key>, CommandError> {
        Ok(self.0.read_key(id).await?.map(|stored| stored.key).filter(|key| !key.session_quota_key))
    }

    /// Some keys. See [`crate::State::page_of_keys`].
    pub(crate) async fn page(
        self,
        list: ListOfKeys,
        mut after: Option<KeyPosition>,
        limit: usize,
    ) -> Result<Page<Key, KeyPosition>, CommandError> {
        let tag = Orgs(self.0).find_tag(list.org).await?;
        let mut keys = Vec::new();
        while let Some(tag) = tag.filter(|_| keys.len() <= limit) {
            let wanted = limit + 1 - keys.len();
            let positions = self.read_positions(tag, list, after, wanted).await?;
            keys.extend(self.read_keys(positions.iter().map(|position| position.id).collect()).await?);
            after = positions.last().copied();
            // Fewer keys than positions: some were removed between the two reads, and the next ones take their places.
            if positions.len() < wanted {
                break;
            }
        }
        Ok(Page::cut(keys, limit, |key| key.into()))
    }

    /// The number of keys of a list. See [`crate::State::count_of_keys`].
    pub(crate) async fn count(self, list: ListOfKeys) -> Result<u64, CommandError> {
        let Some(tag) = Orgs(self.0).find_tag(list.org).await? else { return Ok(0) };
        self.retire_all(tag).await?;
        let index = self.0.shared.names.listed_keys(tag, list.owner);
        // Those at 0 are not listed.
        self.0.client.query(cmd("ZCOUNT").arg(index).arg("(0").arg("+inf")).await
    }

    /// The records of these keys, in their order. Keys that are gone are left out.
    pub(super) async fn read_keys(self, ids: Vec<KeyId>) -> Result<Vec<Key>, CommandError> {
        read_each(ids.into_iter().map(async |id| Ok(self.0.read_key(id).await?.map(|stored| stored.key)))).await
    }

    /// At most `count` positions of a list behind a position.
    async fn read_positions(
        self,
        tag: OrgTag,
        list: ListOfKeys,
        after: Option<KeyPosition>,
        count: usize,
    ) -> Result<Vec<KeyPosition>, CommandError> {
        self.retire_all(tag).await?;
        let names = &self.0.shared.names;
        let index = names.listed_keys(tag, list.owner);
        let created = after.map(|after| after.created.0.to_string()).unwrap_or_default();
        let id = after.as_ref().map_or("", |after| after.id.as_str());
        let first = if list.newest_first { "newest" } else { "oldest" };
        let count = count.to_string();
        let arguments = [first, &created, id, &count].map(str::as_bytes);
        let script = &self.0.shared.scripts.key_page;
        let reply = self.0.client.run(org_slot(tag), script, &[index.as_bytes()], &arguments).await?;
        let pairs = Vec::<(String, f64)>::from_redis_value(reply)?;
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "microseconds, below 2^53")]
        let position = |(id, created)| Ok(KeyPosition { created: Micros(created as u64), id: parse_id(id)? });
        pairs.into_iter().map(position).collect()
    }

    /// Ids of at most `count` keys after one of them, in the order of their creation; without one, from the first.
    pub(crate) async fn read_ids(
        self,
        tag: OrgTag,
        after: Option<KeyId>,
        count: usize,
    ) -> Result<Vec<KeyId>, CommandError> {
        let index = self.0.shared.names.listed_keys(tag, None);
        let first = match after {
            Some(after) => self.rank_after(tag, after).await?,
            None => 0,
        };
        parse_ids(self.0.client.query(cmd("ZRANGE").arg(index).arg(first).arg(first + count - 1)).await?)
    }

    /// The rank of the key after this one; when it has left the list, of the first one that was created later.
    async fn rank_after(self, tag: OrgTag, key: KeyId) -> Result<usize, CommandError> {
        let index = self.0.shared.names.listed_keys(tag, None);
        let rank: Option<usize> = self.0.client.query(cmd("ZRANK").arg(&index).arg(key.as_str())).await?;
        if let Some(rank) = rank {
            return Ok(rank + 1);
        }
        let created = self.0.read_key(key).await?.map_or(0, |stored| stored.key.created.0);
        self.0.client.query(cmd("ZCOUNT").arg(&index).arg("-inf").arg(created)).await
    }

    /// Takes the keys out of the lists of an organization whose time is over.
    pub(crate) async fn retire_all(self, tag: OrgTag) -> Result<(), CommandError> {
        while self.retire_some(tag).await? {}
        while self.retire_ended(tag).await? {}
        Ok(())
    }

    /// Adds a key to the lists of its organization and its user.
    pub(crate) fn add<F>(self, transaction: &mut Transaction<F>, key: &Key) {
        // A session quota key is found by its user, and in no list.
        if key.session_quota_key {
            return;
        }
        let names = &self.0.shared.names;
        for index in indexes_of(transaction, names, key) {
            transaction.zadd(index, key.created.0.max(1), key.id.as_str());
        }
        match key.revoked {
            Some(at) => self.add_revoked(transaction, key, at),
            None => {
                let keys_of = transaction.record(names.keys_of(key.id.tag(), key.user));
                transaction.sadd(keys_of, key.id.as_str());
            }
        }
    }

    /// Moves a key from the keys of its user that are not revoked to the revoked ones.
    pub(super) fn add_revoked<F>(self, transaction: &mut Transaction<F>, key: &Key, at: Micros) {
        let names = &self.0.shared.names;
        let tag = key.id.tag();
        let [revoked, keys_of] = transaction.records([names.revoked_keys(tag), names.keys_of(tag, key.user)]);
        transaction.zadd(revoked, at.0, key.id.as_str());
        transaction.srem(keys_of, key.id.as_str());
    }

    /// Takes some keys out of the lists whose time is over. Returns false when there are none.
    async fn retire_some(self, tag: OrgTag) -> Result<bool, CommandError> {
        let names = &self.0.shared.names;
        let revoked = names.revoked_keys(tag);
        let mut query = cmd("ZRANGEBYSCORE");
        query.arg(&revoked).arg("-inf").arg(self.revoked_up_to().0).arg("LIMIT").arg(0).arg(BATCH);
        let ids: Vec<KeyId> = parse_ids(self.0.client.query(&query).await?)?;
        if ids.is_empty() {
            return Ok(false);
        }
        let keys = read_each(ids.iter().copied().map(async |id| self.0.read_key(id).await)).await?;
        let (mut transaction, revoked) = self.0.transaction_on::<()>(revoked);
        // A list is read to find what to withdraw.
        transaction.allow_oom();
        for key in keys.iter().map(|stored| &stored.key) {
            for index in indexes_of(&mut transaction, names, key) {
                transaction.zrem(index, key.id.as_str());
            }
        }
        ids.iter().for_each(|id| transaction.zrem(revoked, id.as_str()));
        self.0.commit_without_replicas(transaction).await?;
        Ok(true)
    }

    /// Takes some keys of rules out of the lists that ended long enough ago. Returns false when there are none. A key
    /// whose end was put off leaves them later.
    async fn retire_ended(self, tag: OrgTag) -> Result<bool, CommandError> {
        let names = &self.0.shared.names;
        let now = self.0.now();
        let mut query = cmd("ZRANGEBYSCORE");
        query.arg(names.federation_keys(tag)).arg("-inf").arg(now.0).arg("LIMIT").arg(0).arg(BATCH);
        let ids: Vec<KeyId> = parse_ids(self.0.client.query(&query).await?)?;
        if ids.is_empty() {
            return Ok(false);
        }
        let keys = self.read_keys(ids.clone()).await?;
        let (mut transaction, ends) = self.0.transaction_on::<()>(names.federation_keys(tag));
        transaction.allow_oom();
        ids.iter().for_each(|id| transaction.zrem(ends, id.as_str()));
        for key in keys {
            let end = key.policy.as_deref().and_then(|policy| policy.expires);
            match end.map(|end| end.after(LISTED_AFTER_END)) {
                Some(leaves) if leaves > now => transaction.zadd(ends, leaves.0, key.id.as_str()),
                Some(_) => {
                    for index in indexes_of(&mut transaction, names, &key) {
                        transaction.zrem(index, key.id.as_str());
                    }
                }
                // Without an end it is a key like others.
                None => {}
            }
        }
        self.0.commit_without_replicas(transaction).await?;
        Ok(true)
    }

    /// The time up to which a key was revoked that is no longer listed; the epoch while the bounds were not set.
    fn revoked_up_to(self) -> Micros {
        let bounds = self.0.shared.bounds.load();
        bounds.as_ref().as_ref().map_or(Micros(0), |bounds| self.0.now().before(bounds.keep_revoked))
    }

    /// Takes the keys out of the set of a user's keys that do not belong there, because a failover lost their
    /// removal. Returns true when there were some.
    pub(super) async fn prune_user(self, tag: OrgTag, user: UserId) -> Result<bool, CommandError> {
        let name = self.0.shared.names.keys_of(tag, user);
        let mut cursor = String::from("0");
        let mut pruned = false;
        loop {
            let (next, ids): (String, Vec<String>) =
                self.0.client.query(cmd("SSCAN").arg(&name).arg(&cursor).arg("COUNT").arg(BATCH)).await?;
            pruned |= self.prune(tag, user, parse_ids(ids)?).await?;
            if next == "0" {
                return Ok(pruned);
            }
            cursor = next;
        }
    }

    /// Takes those of these keys out of the set of a user's keys that are revoked, or no API keys.
    async fn prune(self, tag: OrgTag, user: UserId, ids: Vec<KeyId>) -> Result<bool, CommandError> {
        let keys = read_each(ids.into_iter().map(async |id| self.0.read_key(id).await)).await?;
        let mut transaction = self.0.transaction::<CommitError>();
        for key in keys.into_iter().map(|stored| stored.key) {
            match key.revoked {
                Some(at) => self.add_revoked(&mut transaction, &key, at),
                None if key.session_quota_key => {
                    let keys_of = transaction.record(self.0.shared.names.keys_of(tag, user));
                    transaction.srem(keys_of, key.id.as_str());
                }
                None => {}
            }
        }
        let prunes = !transaction.is_empty();
        if prunes {
            self.0.commit_without_replicas(transaction).await?;
        }
        Ok(prunes)
    }
}

/// The indexes that a key is listed in: of its organization and of its user.
pub(super) fn indexes_of<F>(transaction: &mut Transaction<F>, names: &RecordNames, key: &Key) -> [Record; 2] {
    transaction.records([None, Some(key.user)].map(|owner| names.listed_keys(key.id.tag(), owner)))
}
