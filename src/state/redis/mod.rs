//! Shared state on Redis: any number of gateways over one truth.
//!
//! Read in this order: `layout` (what is stored), `scripts/decide.lua` and `asking` (a decision), `account` and `keeper`
//! (slots that cannot leak), `changes` (management), `servers` (connections, and when they fail), `provisional`
//! (deciding without Redis).

use std::fmt;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use dashmap::DashMap;
use quick_cache::sync::Cache;
use rustc_hash::FxBuildHasher;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::clock::Micros;
use crate::identity::OrgId;
use crate::key::{KeyDigest, KeyId, OrgTag};
use crate::quota::{Quota, Standing};

use super::{Ask, Decision, Key, Org, Unavailable, User};

mod settings;
mod url;
mod layout;
mod script;
mod stored;
mod known;
mod question;
mod asking;
mod account;
mod telling;
mod active;
mod keeper;
mod directory;
mod changes;
mod revocations;
mod provisional;
mod servers;

use account::Account;
use active::Active;
use known::{Known, Usage};
use layout::Layout;
use script::Scripts;
use servers::{Common, Failure, Servers as Links};
use stored::{StoredKey, StoredOrg};

pub use account::Permit;
pub use servers::{ConnectError, TlsError, Unsuitable};
pub use settings::{Address, Clock, Durability, Login, OnUnavailable, Servers, Settings, Tls};
pub use url::{InvalidUrl, Url};

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
    Tls(#[from] TlsError),
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
}

struct Shared {
    settings: Arc<Settings>,
    layout: Layout,
    scripts: Scripts,
    common: Arc<Common>,
    /// This process among the holders of slots: a field's name that no other has.
    holder: Box<[u8]>,
    known: Cache<KeyDigest, Arc<Known>>,
    accounts: DashMap<OrgTag, Arc<Account>, FxBuildHasher>,
    active: Arc<Active>,
    /// Keys that owe uses which were admitted without Redis.
    debtors: Mutex<Vec<Arc<Known>>>,
    /// Gateways that lived when Redis was last heard.
    gateways: AtomicU32,
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
            layout: Layout::new(&settings.prefix),
            scripts: Scripts::new(),
            holder: format!("h:{}", changes::version()?).into_bytes().into(),
            known: Cache::new(KNOWN),
            accounts: DashMap::with_hasher(FxBuildHasher),
            active: Arc::default(),
            debtors: Mutex::default(),
            gateways: AtomicU32::new(1),
            keeper: Mutex::default(),
            settings,
            common,
        });
        let servers = Links::start(&shared.common);
        if let Ok(Err(error)) = timeout(FIRST, servers.reached()).await
            && error.is_lasting()
        {
            return Err(OpenError::Server(error));
        }
        let keeper = tokio::spawn(keeper::keep(Arc::clone(&shared), Links::start(&shared.common)));
        *shared.keeper() = Some(keeper);
        Ok(Self { shared, servers })
    }

    /// The same state with links of its own, on the runtime that this is called in; they have been tried when it
    /// returns.
    pub async fn for_thread(&self) -> Self {
        let servers = Links::start(&self.shared.common);
        // Without a server it serves all the same: that is what being unavailable is for.
        let _ = timeout(FIRST, servers.reached()).await;
        Self { shared: Arc::clone(&self.shared), servers }
    }

    /// Whether decisions can be made: Redis can be reached, or it is not needed for all of them.
    pub fn available(&self) -> bool {
        self.servers.up() || matches!(self.shared.settings.on_unavailable, OnUnavailable::KnownKeys { .. })
    }

    /// Decides one request. See [`super::State::decide`].
    ///
    /// # Errors
    /// [`Unavailable`]. When an answer was late or lost, a token may have been taken; a slot never stays taken.
    pub async fn decide(&self, ask: Ask<'_>) -> Result<Decision, Unavailable> {
        let asked = timeout(self.shared.settings.deadline, self.asked(ask)).await;
        let unavailable = match asked {
            Ok(Ok(decision)) => return Ok(decision),
            Ok(Err(failure)) => failure.into(),
            Err(_) => Unavailable::Late,
        };
        self.provisional(&ask).ok_or(unavailable)
    }

    /// All organizations, in the order of their creation.
    ///
    /// # Errors
    /// [`Unavailable`], as of all readings.
    pub async fn orgs(&self) -> Result<Vec<Org>, Unavailable> {
        reading(self.all_orgs()).await
    }

    /// All users of an organization, removed ones too, in the order of their creation.
    ///
    /// # Errors
    /// [`Unavailable`].
    pub async fn users(&self, org: OrgId) -> Result<Vec<User>, Unavailable> {
        reading(self.all_users(org)).await
    }

    /// All keys of an organization, revoked ones too, in the order of their creation.
    ///
    /// # Errors
    /// [`Unavailable`].
    pub async fn keys(&self, org: OrgId) -> Result<Vec<Key>, Unavailable> {
        reading(self.all_keys(org)).await
    }

    /// The key that has, or had, this digest.
    ///
    /// # Errors
    /// [`Unavailable`].
    pub async fn key_of(&self, digest: &KeyDigest) -> Result<Option<KeyId>, Unavailable> {
        reading(self.key_with(digest)).await
    }

    /// One key.
    ///
    /// # Errors
    /// [`Unavailable`].
    pub async fn key(&self, id: KeyId) -> Result<Option<Key>, Unavailable> {
        Ok(reading(self.stored_key(id)).await?.map(|stored| stored.key))
    }

    /// Where a key stands, taking nothing.
    ///
    /// # Errors
    /// [`Unavailable`].
    pub async fn standing(&self, id: KeyId, now: Micros) -> Result<Option<Standing>, Unavailable> {
        reading(async {
            match self.known_by_id(id).await? {
                Some(known) => asking::look(self, &Arc::new(known), now).await,
                None => Ok(None),
            }
        })
        .await
    }

    /// The quota of keys without one of their own.
    pub fn quota(&self) -> Quota {
        self.shared.settings.quota
    }

    /// Requests that an organization without a limit of its own may have in flight.
    pub fn concurrent(&self) -> u32 {
        self.shared.settings.concurrent
    }

    /// Requests in flight through this process.
    pub fn in_flight(&self) -> u64 {
        self.shared.accounts.iter().map(|account| u64::from(account.held())).sum()
    }

    /// Gives back what is held, and leaves.
    pub async fn close(&self) {
        // Not within the condition: the lock would be held over the farewell.
        let keeper = self.shared.keeper().take();
        if let Some(keeper) = keeper {
            keeper.abort();
            self.farewell().await;
        }
    }
}

impl Shared {
    /// What a digest leads to, with the account of its organization.
    fn known_of(&self, digest: &KeyDigest, key: &StoredKey, org: &StoredOrg, usage: Option<Arc<Usage>>) -> Known {
        let account = self.accounts.entry(org.org.tag);
        let account =
            account.or_insert_with(|| Arc::new(Account::new(&self.layout, org.org.tag, Arc::clone(&self.active))));
        let account = Arc::clone(&account);
        Known::new(&self.settings, self.layout.key(key.key.id), digest, key, org, account, usage)
    }

    fn remember(&self, digest: &KeyDigest, known: Known) -> Arc<Known> {
        let known = Arc::new(known);
        self.known.insert(*digest, Arc::clone(&known));
        known
    }

    /// Notes a key that owes uses.
    fn owe(&self, known: &Arc<Known>) {
        self.debtors().push(Arc::clone(known));
    }

    fn debtors(&self) -> MutexGuard<'_, Vec<Arc<Known>>> {
        self.debtors.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn keeper(&self) -> MutexGuard<'_, Option<JoinHandle<()>>> {
        self.keeper.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A reading for management.
async fn reading<T>(reading: impl Future<Output = Result<T, Failure>>) -> Result<T, Unavailable> {
    match timeout(READING, reading).await {
        Ok(Ok(read)) => Ok(read),
        Ok(Err(failure)) => {
            tracing::debug!(%failure, "the shared state could not be read");
            Err(failure.into())
        }
        Err(_) => Err(Unavailable::Late),
    }
}

impl fmt::Debug for Redis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let gateways = self.shared.gateways.load(Ordering::Relaxed);
        f.debug_struct("Redis").field("servers", &self.servers).field("gateways", &gateways).finish_non_exhaustive()
    }
}
