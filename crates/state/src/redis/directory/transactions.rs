//! Reads of single records and of lists, and commits of transactions: what all objects of the directory work with.

use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use redis::{FromRedisValue as _, Value, cmd};
use tokio::sync::OnceCell;

use super::transaction::{CommitResult, Transaction};
use crate::cursor_secret::CursorSecret;
use crate::redis::active_defaults::ActiveDefaults;
use crate::redis::record_codec::{Fields, StoredKey};
use crate::redis::record_names::{RecordNames, org_slot};
use crate::redis::revocations::KeptRevocations;
use crate::redis::scripts::Scripts;
use crate::redis::settings::Settings;
use crate::{Bounds, ChangeError, Org, User};
use domain::clock;
use domain::identity::UserId;
use domain::key::{KeyId, OrgTag};
use domain::page::Page;
use redis_client::{CommandError, RedisClient, Script};

/// Time for which a change is repeated while commands fail, beyond the time-out for replicas. Longer than a failover of
/// a Redis that is set up for fast ones, and short enough for an operator to wait.
pub(super) const CHANGE_TIMEOUT: Duration = Duration::from_secs(3);
/// Ids of a list that one command reads: tens of microseconds of the server's time.
const IDS_PER_READ: usize = 1000;
/// Records that are read at a time.
const CONCURRENT_READS: usize = 256;

/// Reads of records and commits of transactions, for one thread.
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
        let bounds = ArcSwap::from_pointee(None);
        Self {
            settings,
            names,
            scripts,
            revocations,
            defaults,
            cursor_secret: OnceCell::new(),
            bounds,
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
        let fields = self.read_fields(org_slot(tag), &self.shared.names.org(tag)).await?;
        fields.map(|fields| fields.org().map(|stored| stored.org)).transpose()
    }

    pub(crate) async fn read_user(&self, tag: OrgTag, user: UserId) -> Result<Option<User>, CommandError> {
        let fields = self.read_fields(org_slot(tag), &self.shared.names.user(tag, user)).await?;
        fields.map(|fields| fields.user().map(|stored| stored.user)).transpose()
    }

    pub(crate) async fn read_key(&self, key: KeyId) -> Result<Option<StoredKey>, CommandError> {
        let fields = self.read_fields(org_slot(key.tag()), &self.shared.names.key(key)).await?;
        fields.map(|fields| fields.key()).transpose()
    }

    /// All fields of a hash; `None` when there is no such hash.
    pub(super) async fn read_fields(&self, slot: u16, name: &str) -> Result<Option<Fields>, CommandError> {
        let mut query = cmd("HGETALL");
        query.arg(name);
        Fields::decode(self.client.send(slot, &query).await?)
    }

    /// One field of a hash.
    pub(crate) async fn read_field(&self, slot: u16, name: &str, field: &str) -> Result<Option<String>, CommandError> {
        let mut query = cmd("HGET");
        query.arg(name).arg(field);
        let value = self.client.send(slot, &query).await?;
        Option::<String>::from_redis_value(value).map_err(|_| CommandError::UnexpectedReply)
    }

    /// The ids in a list, which only grows; read in pieces, so that no command takes long.
    pub(crate) async fn read_list<T: FromStr>(&self, slot: u16, name: &str) -> Result<Vec<T>, CommandError> {
        let mut all = Vec::new();
        loop {
            let mut query = cmd("LRANGE");
            query.arg(name).arg(all.len()).arg(all.len() + IDS_PER_READ - 1);
            let ids: Vec<T> = parse_ids(self.client.send(slot, &query).await?)?;
            if ids.is_empty() {
                return Ok(all);
            }
            all.extend(ids);
        }
    }

    /// Some ids of a list from which none is ever taken, from a position on.
    pub(super) async fn read_page<T: FromStr>(
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

    /// The bounds of what people create.
    pub(crate) fn bounds(&self) -> Bounds {
        self.shared.bounds.load().unwrap_or_default()
    }

    /// An empty transaction at this time.
    pub(crate) fn transaction<F>(&self) -> Transaction<F> {
        Transaction::new(self.shared.settings.script_time(clock::now()))
    }

    /// An empty transaction that withdraws something: it runs also while the server's memory is full.
    pub(crate) fn withdrawal<F>(&self) -> Transaction<F> {
        let mut transaction = self.transaction();
        transaction.allow_oom();
        transaction
    }

    /// Commits a transaction, and waits for no replica.
    pub(crate) async fn commit_without_replicas<F>(
        &self,
        slot: u16,
        transaction: Transaction<F>,
    ) -> Result<CommitResult<F>, CommandError> {
        let (commit, json) = (transaction.script(&self.shared.scripts), transaction.json());
        let reply = self.client.run(slot, commit, &transaction.keys(), &[json.as_bytes()]).await?;
        transaction.into_result(&reply, 0)
    }

    /// Commits a transaction, and waits for as many replicas as are configured.
    pub(crate) async fn commit<F>(
        &self,
        slot: u16,
        transaction: Transaction<F>,
    ) -> Result<CommitResult<F>, CommandError> {
        let (commit, json) = (transaction.script(&self.shared.scripts), transaction.json());
        let (reply, replicas) = self.run_durably(slot, commit, &transaction.keys(), &[json.as_bytes()]).await?;
        transaction.into_result(&reply, replicas)
    }

    /// Runs the script that takes a ticket, and waits for as many replicas as are configured.
    pub(super) async fn run_take_ticket(&self, slot: u16, name: &str) -> Result<(Value, u32), CommandError> {
        self.run_durably(slot, &self.shared.scripts.take_ticket, &[name.as_bytes()], &[]).await
    }

    /// Runs a script that writes, and waits for as many replicas as are configured. Returns how many have its writes.
    async fn run_durably(
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

    /// Checks that as many replicas as are configured have a change.
    pub(crate) fn check_replicated(&self, reached: u32) -> Result<(), ChangeError> {
        let wanted = self.shared.settings.durability.replicas;
        if reached < wanted { Err(ChangeError::NotReplicated { wanted, reached }) } else { Ok(()) }
    }
}

pub(super) fn parse_ids<T: FromStr>(reply: Value) -> Result<Vec<T>, CommandError> {
    let ids = Vec::<String>::from_redis_value(reply).map_err(|_| CommandError::UnexpectedReply)?;
    ids.into_iter().map(|id| id.parse().map_err(|_| CommandError::UnexpectedReply)).collect()
}

/// Carries out many reads, some at a time, and keeps their order. Records that are gone are left out.
pub(super) async fn read_each<T>(
    reads: impl Iterator<Item = impl Future<Output = Result<Option<T>, CommandError>>>,
) -> Result<Vec<T>, CommandError> {
    let found: Vec<Option<T>> = stream::iter(reads).buffered(CONCURRENT_READS).try_collect().await?;
    Ok(found.into_iter().flatten().collect())
}
