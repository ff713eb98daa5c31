//! Records of a Redis state, for an export.
//!
//! No list has all keys: those whose revocation is long past have left them, and digests before the last rotation are
//! in the index of digests alone. So that index is read whole, with `SCAN` on every primary, and has all keys and
//! digests.

use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use redis::cmd;

use super::Redis;
use super::directory::{KeyActorIndex, Transactions, Users, parse_id};
use super::record_codec::StoredKey;
use crate::spending::Spending;
use crate::{KeyActors, KeyExport, Org, Unavailable, UserExport};
use domain::identity::UserId;
use domain::key::{KeyDigest, KeyId, OrgTag};
use redis_client::CommandError;

/// Records that are read at a time.
const CONCURRENT_READS: usize = 256;
/// Names that one `SCAN` looks at: about a tenth of a millisecond of the server's time.
const NAMES_PER_SCAN: usize = 1000;
/// Scans to try while the servers change.
const MAX_SCANS: usize = 3;

/// Reads the records of a Redis state.
pub(crate) struct Reader<'a> {
    store: &'a Transactions,
    /// All digests by the keys that have, had or claimed them, sorted.
    digests: Vec<(KeyId, [u8; 32])>,
}

impl Redis {
    /// Reads of all records, for an export.
    ///
    /// # Errors
    /// [`Unavailable`].
    pub(crate) async fn export_reader(&self) -> Result<Reader<'_>, Unavailable> {
        Reader::begin(&self.transactions).await
    }
}

impl<'a> Reader<'a> {
    /// Reads the index of digests.
    async fn begin(store: &'a Transactions) -> Result<Self, Unavailable> {
        for _ in 0..MAX_SCANS {
            let before = store.client.history();
            let mut digests = read_digests(store).await?;
            // After a failover or a move of hash slots, a cursor of before may have left out names.
            if store.client.history() == before {
                digests.sort_unstable();
                digests.dedup();
                return Ok(Self { store, digests });
            }
        }
        Err(Unavailable::Unreachable)
    }

    /// The ids of the users of an organization, in the order of their creation.
    pub(crate) async fn user_ids(&self, org: &Org) -> Result<Vec<UserId>, Unavailable> {
        Ok(self.store.read_list(&self.store.shared.names.users(org.tag)).await?)
    }

    /// Users with the buckets of the keys that they create.
    pub(crate) async fn users(&self, org: &Org, ids: &[UserId]) -> Result<Vec<UserExport>, Unavailable> {
        let read = ids.iter().map(async |id| {
            let Some(user) = self.store.read_user(org.tag, *id).await? else { return Ok(None) };
            let creation = Users(self.store).read_creation_bucket(org.tag, *id).await?;
            Ok::<_, CommandError>(Some(UserExport { user, creation }))
        });
        let read: Vec<_> = stream::iter(read).buffered(CONCURRENT_READS).try_collect().await?;
        Ok(read.into_iter().flatten().collect())
    }

    /// The ids of all keys of an organization, in their order.
    pub(crate) fn key_ids(&self, tag: OrgTag) -> Vec<KeyId> {
        let first = self.digests.partition_point(|(id, _)| id.tag() < tag);
        let of_org = self.digests[first..].iter().map(|(id, _)| *id).take_while(|id| id.tag() == tag);
        let mut ids: Vec<KeyId> = of_org.collect();
        ids.dedup();
        ids
    }

    /// Keys with their digests and buckets, and what each has spent. An id without a record is a claim that was never
    /// completed.
    pub(crate) async fn keys(&self, ids: &[KeyId]) -> Result<Vec<(KeyExport, Spending)>, Unavailable> {
        let read = ids.iter().map(async |id| self.store.read_key(*id).await);
        let read: Vec<_> = stream::iter(read).buffered(CONCURRENT_READS).try_collect().await?;
        let export = |stored: StoredKey| {
            let spent = stored.spent;
            (self.export(stored), spent)
        };
        Ok(read.into_iter().flatten().map(export).collect())
    }

    /// The actors of keys of one organization, in their order.
    pub(crate) async fn actors(&self, ids: &[KeyId]) -> Result<Vec<KeyActors>, Unavailable> {
        Ok(KeyActorIndex(self.store).read(ids).await?)
    }

    fn export(&self, mut stored: StoredKey) -> KeyExport {
        let StoredKey { key, digest, previous, .. } = &mut stored;
        // A rotation without an overlap leaves a digest that was never valid beside the new one.
        *previous = previous.filter(|_| key.previous_until > key.rotated);
        let first = self.digests.partition_point(|(id, _)| *id < key.id);
        let all = self.digests[first..].iter().take_while(|(id, _)| *id == key.id);
        let all = all.map(|(_, digest)| KeyDigest::from_bytes(*digest));
        let replaced = all.filter(|other| other != digest && Some(*other) != *previous).collect();
        stored.export(replaced)
    }
}

/// Reads the digests of all primaries with their keys.
async fn read_digests(store: &Transactions) -> Result<Vec<(KeyId, [u8; 32])>, CommandError> {
    let prefix = store.shared.names.digests();
    // A prefix has none of the characters that mean something in a pattern.
    let pattern = format!("{prefix}*");
    let mut digests = Vec::new();
    for primary in store.client.primaries()? {
        let mut cursor = String::from("0");
        loop {
            let mut scan = cmd("SCAN");
            scan.arg(&cursor).arg("MATCH").arg(&pattern).arg("COUNT").arg(NAMES_PER_SCAN);
            let (next, names): (String, Vec<String>) = store.client.query_at(&primary, &scan).await?;
            digests.extend(read_owners(store, &prefix, names).await?);
            if next == "0" {
                break;
            }
            cursor = next;
        }
    }
    Ok(digests)
}

/// Reads the keys that these digests belong to.
async fn read_owners(
    store: &Transactions,
    prefix: &str,
    names: Vec<String>,
) -> Result<Vec<(KeyId, [u8; 32])>, CommandError> {
    let read = names.iter().map(async |name| {
        let Some(digest) = name.strip_prefix(prefix).and_then(|hex| KeyDigest::from_hex(hex).ok()) else {
            return Ok(None);
        };
        let owner = store.read_field(name, "key").await?.map(parse_id).transpose()?;
        Ok::<_, CommandError>(owner.map(|id: KeyId| (id, *digest.as_bytes())))
    });
    let read: Vec<_> = stream::iter(read).buffered(CONCURRENT_READS).try_collect().await?;
    Ok(read.into_iter().flatten().collect())
}
