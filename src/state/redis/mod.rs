//! Shared state on Redis: any number of gateways over one truth.
//!
//! Read in this order: `record_names` (what is stored), `scripts/decide.lua` and `asking` (a decision), `lease`, `report`
//! and `keeper` (slots that cannot leak), `changes` (management), `sessions`, `servers` (connections, and when they fail),
//! `provisional` (deciding without Redis).
//!
//! # What holds
//!
//! - A decision is one script in one slot, at the server's time. It names the versions of the records that the gateway
//!   judged it by, and holds only for these: what was changed before it begins, it obeys. A key that a gateway has not
//!   seen yet, or that was changed, costs one round trip more.
//! - A gateway holds slots on an lease of its own in the organization's record. While it lives it says so; when it
//!   dies, whoever finds the organization full after its lease forgets it. What a lost answer leaves unknown is settled
//!   with the whole number before anything else is admitted.
//! - A slot that a gateway has released reaches Redis with its next decision for that organization, or within 0.2 s
//!   (2 ms where the organization was last seen at half its limit or more). Until then others may find it taken.
//! - A change is acknowledged when the primary has it, and as many replicas as `durability` says.
//!
//! # What a failover undoes
//!
//! Redis replicates asynchronously: a primary that dies takes along what it acknowledged and no replica has got yet,
//! usually the last milliseconds, after a partition up to as long as it lasted. Of that,
//!
//! - tokens come back to buckets: as many requests as were lost may be admitted once more;
//! - slots are told anew, the whole number of them, by every gateway before it admits anything on the new primary. Until
//!   all have done so, which takes them a tenth of a second, an organization may get more slots than its limit, by what
//!   the others have not told yet;
//! - revocations of keys, also those that came with the removal of a user, are told to the new primary by the gateways
//!   that acknowledged them, before a first connection to it serves anything else (the last 10,000 of each process).
//!   They are undone only when the gateway dies together with the primary. A removed user's own record does come back:
//!   remove it again;
//! - so are ends of sessions; a ticket may be taken once more;
//! - other changes (a new key, a new session, a rotation, a suspension, permissions, limits) are undone.
//!
//! With `durability: { replicas: 1 }` a change is acknowledged only when a replica has it too, and survives the loss of
//! the primary as long as that replica is the one promoted. Set Redis's `min-replicas-to-write 1` and
//! `min-replicas-max-lag` as well, so that a primary cut off from its replicas stops admitting.
//!
//! # How far it carries
//!
//! Redis runs scripts on one thread. A decision takes 6 to 8 µs of it with one in flight and 5 to 6 µs under load, and a
//! forwarded request takes one command, its releases included (`benches/README.md` has the figures and how they were
//! measured). With what the server spends on reading and writing its sockets, one Redis carries about 100,000 decisions
//! a second on a core of its own, whatever the number of gateways, and two thirds of that with room for bursts. That is
//! the number to plan with; `io-threads` take some of the sockets' share off the one thread.
//!
//! **Cluster** multiplies it: all records of an organization are in one slot, and organizations spread over the slots
//! by their tags, so N primaries carry N times as much, and each decision still is one round trip to one of them. What
//! does not spread is a single organization: its decisions are counted in one place, which is what makes its limits
//! exact, so one organization has at most what one primary carries.
//!
//! **A million requests a second** take a Cluster of 12 to 16 primaries, each on a core of its own and at about two
//! thirds of what it carries, and as many gateways as the traffic itself needs. When a single organization comes near
//! the limit of a primary, give it several, or upstreams of its own behind gateways with a Redis of their own
//! (`prefix` keeps deployments apart that share one). Before that, see whether the time goes into the sockets
//! (`io-threads`), and whether the gateways are near Redis: a decision waits for the round trip, at 0.2 ms as well as
//! at 2 ms, and only requests in flight hide that.

use std::fmt;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwap;
use dashmap::DashMap;
use quick_cache::sync::Cache;
use rustc_hash::FxBuildHasher;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::clock::Micros;
use crate::identity::{OrgId, UserId};
use crate::key::{KeyDigest, KeyId, OrgTag};
use crate::quota::{Quota, RateLimitStatus};
use crate::tls;

use super::{DecideRequest, Decision, Defaults, Key, Org, Unavailable, User};

mod settings;
mod record_names;
mod record_codec;
mod client;
mod decide;
mod slots;
mod directory;
pub mod import;

use client::script::Scripts;
use client::{CommandError, Common, Servers as Links};
use decide::call as asking;
use decide::key_cache::{CachedKey, CachedUsage};
use decide::late_answer::LateAnswer;
use directory::changes;
use record_codec::{StoredKey, StoredOrg};
use record_names::RecordNames;
use slots::active_leases::ActiveLeases;
use slots::heartbeat;
use slots::lease::SlotLease;

pub use client::url::{InvalidUrl, Url};
pub use client::{ConnectError, Unsuitable};
pub use settings::{Address, Clock, Durability, Login, OnUnavailable, Servers, Settings};
pub use slots::lease::Permit;

/// Keys that are known at a time, some 500 bytes each. One more that is in use costs a second round trip now and then.
const KNOWN: usize = 200_000;
/// How long management waits for a reading.
const READING: Duration = Duration::from_secs(5);
/// How long the start waits for a server before it goes on without one.
const FIRST: Duration = Duration::from_secs(2);

/// Why the Redis state could not be opened. That no server can be reached is none: it may come yet.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The certificates.
    #[error(transparent)]
    Tls(#[from] tls::Error),
    /// A server is there and cannot be used as it is.
    #[error("the Redis server cannot be used")]
    Server(#[source] Arc<ConnectError>),
    /// The operating system gave no randomness.
    #[error("the operating system gave no randomness")]
    Randomness(#[from] getrandom::Error),
}

/// The Redis state, for one thread. What is known, and what is held, all threads of a process share.
///
/// - It belongs to the runtime in which it was made, and its links live as long as both.
pub struct Redis {
    shared: Arc<Shared>,
    servers: Links,
    /// Where changes are written: links of their own when they wait for replicas, and all behind them on a connection.
    commits: Links,
}

struct Shared {
    /// As they were at the start; the limits of those who have none of their own are in `defaults`.
    settings: Arc<Settings>,
    defaults: ArcSwap<Defaults>,
    record_names: RecordNames,
    scripts: Scripts,
    common: Arc<Common>,
    /// This process among the holders of slots: a field's name that no other has.
    holder: Box<[u8]>,
    known: Cache<KeyDigest, Arc<CachedKey>>,
    leases: DashMap<OrgTag, Arc<SlotLease>, FxBuildHasher>,
    active: Arc<ActiveLeases>,
    /// Keys that owe uses which were admitted without Redis.
    unreported_keys: Mutex<Vec<Arc<CachedKey>>>,
    /// Gateways that lived when Redis was last heard.
    gateways: AtomicU32,
    /// Held by a change that waits for replicas.
    committing: tokio::sync::Mutex<()>,
    keeper: Mutex<Option<JoinHandle<()>>>,
}

impl Redis {
    /// Connects, and starts to keep house, on the runtime that this is called in.
    ///
    /// # Errors
    /// [`OpenError`] when somebody has to change something. When no server can be reached, it is not one: decisions
    /// are refused, or made without Redis, until one can.
    pub async fn open(settings: Settings) -> Result<Self, OpenError> {
        let settings = Arc::new(settings);
        let common = Arc::new(Common::new(Arc::clone(&settings))?);
        let shared = Arc::new(Shared {
            record_names: RecordNames::new(&settings.prefix),
            scripts: Scripts::new(),
            holder: format!("h:{}", changes::version()?).into_bytes().into(),
            known: Cache::new(KNOWN),
            leases: DashMap::with_hasher(FxBuildHasher),
            active: Arc::default(),
            unreported_keys: Mutex::default(),
            gateways: AtomicU32::new(1),
            committing: tokio::sync::Mutex::default(),
            keeper: Mutex::default(),
            defaults: ArcSwap::from_pointee(settings.defaults()),
            settings,
            common,
        });
        let servers = Links::start(&shared.common);
        if let Ok(Err(error)) = timeout(FIRST, servers.all_reached()).await
            && error.is_lasting()
        {
            return Err(OpenError::Server(error));
        }
        let keeper = tokio::spawn(heartbeat::run(Arc::clone(&shared), Links::start(&shared.common)));
        *shared.keeper() = Some(keeper);
        let waits = shared.settings.durability.replicas > 0;
        let commits = if waits { Links::start(&shared.common) } else { servers.clone() };
        Ok(Self { shared, servers, commits })
    }

    /// The same state with links of its own, on the runtime that this is called in; they have been tried when it
    /// returns.
    pub async fn for_thread(&self) -> Self {
        let servers = Links::start(&self.shared.common);
        // Without a server it serves all the same: that is what being unavailable is for.
        let _ = timeout(FIRST, servers.all_reached()).await;
        // What waits for replicas waits on the first thread's links, which no decision is behind.
        let commits = if self.shared.settings.durability.replicas > 0 { self.commits.clone() } else { servers.clone() };
        Self { shared: Arc::clone(&self.shared), commits, servers }
    }

    /// Whether decisions can be made: Redis can be reached, or it is not needed for all of them.
    pub fn available(&self) -> bool {
        self.servers.up() || matches!(self.shared.settings.on_unavailable, OnUnavailable::KnownKeys { .. })
    }

    /// Decides one request. See [`super::State::decide`].
    ///
    /// # Errors
    /// [`Unavailable`]. When an answer was late or lost, a token may have been taken; a slot never stays taken.
    pub async fn decide(&self, ask: DecideRequest<'_>) -> Result<Decision, Unavailable> {
        let settings = &self.shared.settings;
        let late_answer =
            matches!(settings.on_unavailable, OnUnavailable::KnownKeys { .. }).then(Arc::<LateAnswer>::default);
        let asked = timeout(settings.deadline, self.decide_with_retry(ask, late_answer.as_ref())).await;
        let unavailable = match asked {
            Ok(Ok(decision)) => return Ok(decision),
            // Redis is there: the next request is decided again.
            Ok(Err(failure @ CommandError::Fenced)) => return Err(failure.into()),
            Ok(Err(failure)) => failure.into(),
            Err(_) => Unavailable::TimedOut,
        };
        self.provisional(&ask, late_answer.as_deref()).ok_or(unavailable)
    }

    /// All organizations, in the order of their creation.
    ///
    /// # Errors
    /// [`Unavailable`], as of all readings.
    pub async fn orgs(&self) -> Result<Vec<Org>, Unavailable> {
        reading(self.list_orgs()).await
    }

    /// All users of an organization, removed ones too, in the order of their creation.
    ///
    /// # Errors
    /// [`Unavailable`].
    pub async fn users(&self, org: OrgId) -> Result<Vec<User>, Unavailable> {
        reading(self.list_users(org)).await
    }

    /// One organization.
    ///
    /// # Errors
    /// [`Unavailable`].
    pub async fn org(&self, id: OrgId) -> Result<Option<Org>, Unavailable> {
        reading(self.find_org(id)).await
    }

    /// The user with an email address. See [`super::State::user_by_email`].
    ///
    /// # Errors
    /// [`Unavailable`].
    pub async fn user_by_email(&self, org: OrgId, email: &str) -> Result<Option<User>, Unavailable> {
        reading(self.find_user_by_email(org, email)).await
    }

    /// An organization and one of its users. See [`super::State::member`].
    ///
    /// # Errors
    /// [`Unavailable`].
    pub async fn member(&self, org: OrgId, user: UserId) -> Result<Option<(Org, User)>, Unavailable> {
        reading(self.read_member(org, user)).await
    }

    /// All keys of an organization, revoked ones too, in the order of their creation; no session quota keys.
    ///
    /// # Errors
    /// [`Unavailable`].
    pub async fn keys(&self, org: OrgId) -> Result<Vec<Key>, Unavailable> {
        reading(self.list_keys(org)).await
    }

    /// The key that has, or had, this digest.
    ///
    /// # Errors
    /// [`Unavailable`].
    pub async fn key_of(&self, digest: &KeyDigest) -> Result<Option<KeyId>, Unavailable> {
        reading(self.find_key(digest)).await
    }

    /// One key.
    ///
    /// # Errors
    /// [`Unavailable`].
    pub async fn key(&self, id: KeyId) -> Result<Option<Key>, Unavailable> {
        Ok(reading(self.read_key(id)).await?.map(|stored| stored.key))
    }

    /// Where a key stands, taking nothing.
    ///
    /// # Errors
    /// [`Unavailable`].
    pub async fn rate_limit_status(&self, id: KeyId, now: Micros) -> Result<Option<RateLimitStatus>, Unavailable> {
        reading(async {
            match self.read_cached_key(id).await? {
                Some(known) => asking::read_status(self, &Arc::new(known), now).await,
                None => Ok(None),
            }
        })
        .await
    }

    /// The quota of keys without one of their own.
    pub fn quota(&self) -> Quota {
        self.shared.defaults.load().quota
    }

    /// Requests that an organization without a limit of its own may have in flight.
    pub fn concurrent(&self) -> u32 {
        self.shared.defaults.load().concurrent
    }

    /// Puts other limits in force for those who have none of their own. See [`super::State::set_defaults`].
    ///
    /// Records are read anew for the next decision of each key; while Redis is away, what is known stays good.
    pub fn set_defaults(&self, defaults: Defaults) {
        self.shared.defaults.store(Arc::new(defaults));
    }

    /// Requests in flight through this process.
    pub fn in_flight(&self) -> u64 {
        self.shared.leases.iter().map(|lease| u64::from(lease.held())).sum()
    }

    /// Gives back what is held, and leaves.
    pub async fn close(&self) {
        // Not within the condition: the lock would be held over the deregister.
        let keeper = self.shared.keeper().take();
        if let Some(keeper) = keeper {
            keeper.abort();
            self.deregister().await;
        }
    }
}

impl Shared {
    /// What a digest leads to, with the lease of its organization.
    fn cached_key(
        &self,
        digest: &KeyDigest,
        key: &StoredKey,
        org: &StoredOrg,
        usage: Option<Arc<CachedUsage>>,
    ) -> CachedKey {
        let lease = self.leases.entry(org.org.tag);
        let lease = lease.or_insert_with(|| {
            let failovers = Arc::clone(&self.common.failovers);
            Arc::new(SlotLease::new(&self.record_names, org.org.tag, Arc::clone(&self.active), failovers))
        });
        let lease = Arc::clone(&lease);
        CachedKey::new(**self.defaults.load(), self.record_names.key(key.key.id), digest, key, org, lease, usage)
    }

    /// What is known of a digest under the limits in force.
    fn cache_get(&self, digest: &KeyDigest) -> Option<Arc<CachedKey>> {
        self.known.get(digest).filter(|known| known.defaults == **self.defaults.load())
    }

    fn cache_put(&self, digest: &KeyDigest, known: CachedKey) -> Arc<CachedKey> {
        let known = Arc::new(known);
        self.known.insert(*digest, Arc::clone(&known));
        known
    }

    /// Notes a use that Redis is to be told of.
    fn record_unreported(&self, known: &Arc<CachedKey>) {
        // Without randomness there is no name for a debt: the use is forgotten, as a lost token would be.
        let Some(name) = changes::version().ok().and_then(|name| name.as_bytes().first_chunk().copied()) else {
            return;
        };
        if CachedUsage::owe(&mut known.usage.told(), name) == 1 {
            self.owe(known);
        }
    }

    /// Notes a key that owes uses.
    fn owe(&self, known: &Arc<CachedKey>) {
        self.unreported_keys().push(Arc::clone(known));
    }

    fn unreported_keys(&self) -> MutexGuard<'_, Vec<Arc<CachedKey>>> {
        self.unreported_keys.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn keeper(&self) -> MutexGuard<'_, Option<JoinHandle<()>>> {
        self.keeper.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A reading for management.
async fn reading<T>(reading: impl Future<Output = Result<T, CommandError>>) -> Result<T, Unavailable> {
    match timeout(READING, reading).await {
        Ok(Ok(read)) => Ok(read),
        Ok(Err(failure)) => {
            tracing::debug!(%failure, "the shared state could not be read");
            Err(failure.into())
        }
        Err(_) => Err(Unavailable::TimedOut),
    }
}

impl fmt::Debug for Redis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let gateways = self.shared.gateways.load(Ordering::Relaxed);
        f.debug_struct("Redis").field("servers", &self.servers).field("gateways", &gateways).finish_non_exhaustive()
    }
}
