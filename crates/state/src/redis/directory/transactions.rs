//! Reads of single records and of lists, and commits of transactions: what all objects of the directory work with.

use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use parking_lot::Mutex;
use redis::{FromRedisValue as _, Value, cmd};
use tokio::sync::OnceCell;

use super::check::Record;
use super::transaction::{CommitResult, Transaction};
use crate::cursor_secret::CursorSecret;
use crate::identity::IdentityGuard;
use crate::redis::active_defaults::ActiveDefaults;
use crate::redis::identity::ListedOrgs;
use crate::redis::record_codec::{Fields, StoredKey};
use crate::redis::record_names::RecordNames;
use crate::redis::revocations::KeptRevocations;
use crate::redis::scripts::Scripts;
use crate::redis::settings::Settings;
use crate::{Bounds, Org, User};
use domain::clock::{self, Micros};
use domain::identity::UserId;
use domain::key::{KeyId, OrgTag};
use domain::page::Page;
use redis_client::{CommandError, RedisClient, Script, hash_slot};

/// Time for which a change is repeated while commands fail, beyond the time-out for replicas. Longer than a failover of
/// a Redis that is set up for fast ones, and short enough for an operator to wait.
pub(super) const CHANGE_TIMEOUT: Duration = Duration::from_secs(3);
/// Ids of a list that one command reads: tens of microseconds of the server's time.
const IDS_PER_READ: usize = 1000;
/// Records that are read at a time.
const CONCURRENT_READS: usize = 256;

/// Reads of records and commits of transactions, for one thread.
#[derive(Clone)]
pub(crate) struct Transactions {
    pub(crate) shared: Arc<DirectoryShared>,
    pub(crate) client: RedisClient,
    /// Client of the commits. It has links of its own when commits wait for replicas, because WAIT blocks everything
    /// behind it on the connection.
    commit_client: RedisClient,
}

/// State that all threads share.
pub(crate) struct DirectoryShared {
    /// As at the start; the limits in `defaults` can change.
    pub(crate) settings: Arc<Settings>,
    pub(crate) names: RecordNames,
    pub(super) scripts: Arc<Scripts>,
    pub(super) revocations: Arc<KeptRevocations>,
    pub(crate) defaults: Arc<ArcSwap<ActiveDefaults>>,
    /// Read once.
    pub(super) cursor_secret: OnceCell<CursorSecret>,
    /// Bounds of what people create; none until they were set.
    pub(crate) bounds: ArcSwap<Option<Bounds>>,
    /// Continuity of the state.
    pub(crate) identity: Arc<IdentityGuard>,
    /// Organizations by which lost data of a shard is noticed.
    pub(crate) listed_orgs: Mutex<ListedOrgs>,
    /// Held by a commit that waits for replicas.
    committing: tokio::sync::Mutex<()>,
}

impl DirectoryShared {
    pub(crate) fn new(
        settings: Arc<Settings>,
        scripts: Arc<Scripts>,
        revocations: Arc<KeptRevocations>,
        defaults: Arc<ArcSwap<ActiveDefaults>>,
    ) -> Self {
        let names = RecordNames::new(&settings.prefix);
        let identity = Arc::new(IdentityGuard::new(settings.max_loss));
        let bounds = ArcSwap::from_pointee(None);
        Self {
            settings,
            names,
            scripts,
            revocations,
            defaults,
            cursor_secret: OnceCell::new(),
            bounds,
            identity,
            listed_orgs: Mutex::default(),
            committing: tokio::sync::Mutex::default(),
        }
    }
}

impl Transactions {
    /// Reads with one client, and commits with another.
    pub(crate) fn new(shared: Arc<DirectoryShared>, client: RedisClient, commit_client: RedisClient) -> Self {
        Self { shared, client, commit_client }
    }

    /// The same for another thread.
    pub(crate) fn with_client(&self, client: RedisClient) -> Self {
        // Commits that wait for replicas stay on the first thread's links, which no decision uses.
        let waits = self.shared.settings.durability.replicas > 0;
        let commit_client = if waits { self.commit_client.clone() } else { client.clone() };
        Self { shared: Arc::clone(&self.shared), client, commit_client }
    }

    pub(crate) async fn read_org(&self, tag: OrgTag) -> Result<Option<Org>, CommandError> {
        let fields = self.read_fields(&self.shared.names.org(tag)).await?;
        fields.map(|fields| fields.org().map(|stored| stored.org)).transpose()
    }

    pub(crate) async fn read_user(&self, tag: OrgTag, user: UserId) -> Result<Option<User>, CommandError> {
        let fields = self.read_fields(&self.shared.names.user(tag, user)).await?;
        fields.map(|fields| fields.user().map(|stored| stored.user)).transpose()
    }

    pub(crate) async fn read_key(&self, key: KeyId) -> Result<Option<StoredKey>, CommandError> {
        let fields = self.read_fields(&self.shared.names.key(key)).await?;
        fields.map(|fields| fields.key()).transpose()
    }

    /// All fields of a hash; `None` when there is no such hash.
    pub(super) async fn read_fields(&self, name: &str) -> Result<Option<Fields>, CommandError> {
        Fields::decode(self.client.query(cmd("HGETALL").arg(name)).await?)
    }

    /// One field of a hash.
    pub(crate) async fn read_field(&self, name: &str, field: &str) -> Result<Option<String>, CommandError> {
        self.client.query(cmd("HGET").arg(name).arg(field)).await
    }

    /// The ids in a list, which only grows; read in pieces, so that no command takes long.
    pub(crate) async fn read_list<T: FromStr>(&self, name: &str) -> Result<Vec<T>, CommandError> {
        let mut all = Vec::new();
        loop {
            let last = all.len() + IDS_PER_READ - 1;
            let ids = self.client.query(cmd("LRANGE").arg(name).arg(all.len()).arg(last)).await?;
            let ids: Vec<T> = parse_ids(ids)?;
            if ids.is_empty() {
                return Ok(all);
            }
            all.extend(ids);
        }
    }

    /// Some ids of a list from which none is ever taken, from a position on.
    pub(super) async fn read_page<T: FromStr>(
        &self,
        list: &str,
        from: u64,
        limit: usize,
    ) -> Result<Page<T, u64>, CommandError> {
        // Redis counts positions in signed numbers; no list is as long as this.
        let from = from.min(u64::from(u32::MAX));
        let limit = limit as u64;
        // Both ends are included: one id more tells whether another page follows.
        let ids = self.client.query(cmd("LRANGE").arg(list).arg(from).arg(from + limit)).await?;
        let mut ids = parse_ids(ids)?;
        let next = (ids.len() as u64 > limit).then_some(from + limit);
        ids.truncate(usize::try_from(limit).unwrap_or(usize::MAX));
        Ok(Page { items: ids, next })
    }

    /// The bounds of what people create.
    pub(crate) fn bounds(&self) -> Bounds {
        self.shared.bounds.load().unwrap_or_default()
    }

    /// The time by the clock of the servers.
    pub(crate) fn now(&self) -> Micros {
        self.client.shared().server_time(clock::now())
    }

    /// A time of this process as the scripts see it: by the clock of the servers, unless the caller chooses the time.
    pub(super) fn script_now(&self, now: Micros) -> Micros {
        if self.shared.settings.script_time(now) == 0 { self.client.shared().server_time(now) } else { now }
    }

    /// An empty transaction at this time.
    pub(crate) fn transaction<F>(&self) -> Transaction<F> {
        Transaction::new(self.shared.settings.script_time(clock::now()))
    }

    /// A transaction at this time, with its first record.
    pub(crate) fn transaction_on<F>(&self, name: String) -> (Transaction<F>, Record) {
        let mut transaction = self.transaction();
        let record = transaction.record(name);
        (transaction, record)
    }

    /// Commits a transaction, and waits for no replica.
    pub(crate) async fn commit_without_replicas<F>(
        &self,
        transaction: Transaction<F>,
    ) -> Result<CommitResult<F>, CommandError> {
        let commit = transaction.script(&self.shared.scripts);
        let json = transaction.json();
        let slot = transaction.hash_slot();
        let reply = self.client.run(slot, commit, &transaction.keys(), &[json.as_bytes()]).await?;
        transaction.into_result(&reply, 0)
    }

    /// Commits a transaction, and waits for as many replicas as are configured.
    pub(crate) async fn commit<F>(&self, transaction: Transaction<F>) -> Result<CommitResult<F>, CommandError> {
        let commit = transaction.script(&self.shared.scripts);
        let json = transaction.json();
        let slot = transaction.hash_slot();
        let (reply, replicas) = self.run_durably(slot, commit, &transaction.keys(), &[json.as_bytes()]).await?;
        transaction.into_result(&reply, replicas)
    }

    /// Runs the script that takes a ticket, and waits for as many replicas as are configured.
    pub(super) async fn run_take_ticket(&self, name: &str) -> Result<(Value, u32), CommandError> {
        self.run_durably(hash_slot(name), &self.shared.scripts.take_ticket, &[name.as_bytes()], &[]).await
    }

    /// Runs a script that writes, and waits for as many replicas as are configured. Returns how many have its writes.
    pub(super) async fn run_durably(
        &self,
        slot: u16,
        script: &Script,
        keys: &[&[u8]],
        arguments: &[&[u8]],
    ) -> Result<(Value, u32), CommandError> {
        let durability = self.shared.settings.durability;
        // One commit at a time: another one on the same connection would wait behind its WAIT, and look late.
        let _alone = if durability.replicas > 0 { Some(self.shared.committing.lock().await) } else { None };
        self.commit_client.run_durably(slot, script, keys, arguments, durability).await
    }

    /// The secret that the cursors of lists are sealed with: read once. The first gateway that needs it stores a fresh
    /// one.
    pub(crate) async fn read_cursor_secret(&self) -> Result<CursorSecret, CommandError> {
        let read = async {
            let fresh = CursorSecret::generate().map_err(|error| {
                tracing::error!(%error, "the operating system gave no randomness for the secret of cursors");
                CommandError::UnexpectedReply
            })?;
            let name = self.shared.names.cursor_secret();
            let script = &self.shared.scripts.keep_secret;
            let stored = self.client.run(hash_slot(&name), script, &[name.as_bytes()], &[fresh.as_bytes()]).await?;
            let bytes = Vec::<u8>::from_redis_value(stored)?;
            let bytes = <[u8; 32]>::try_from(bytes).map_err(|_| CommandError::UnexpectedReply)?;
            Ok(CursorSecret::from_bytes(bytes))
        };
        self.shared.cursor_secret.get_or_try_init(|| read).await.cloned()
    }
}

/// Parses an id as Redis has it.
pub(crate) fn parse_id<T: FromStr>(id: impl AsRef<str>) -> Result<T, CommandError> {
    id.as_ref().parse().map_err(|_| CommandError::UnexpectedReply)
}

pub(super) fn parse_ids<T: FromStr>(ids: Vec<String>) -> Result<Vec<T>, CommandError> {
    ids.into_iter().map(parse_id).collect()
}

/// Carries out many reads, some at a time, and keeps their order. Records that are gone are left out.
pub(super) async fn read_each<T>(
    reads: impl Iterator<Item = impl Future<Output = Result<Option<T>, CommandError>>>,
) -> Result<Vec<T>, CommandError> {
    let found: Vec<Option<T>> = stream::iter(reads).buffered(CONCURRENT_READS).try_collect().await?;
    Ok(found.into_iter().flatten().collect())
}
