//! The way to the servers: which of them a slot is on, and commands that find it.
//!
//! - Nothing here waits for a server that is away: a command fails at once when its link is down.
//! - A command is sent again only when it is certain that it did not run (`MOVED`, `ASK`, `NOSCRIPT`, `TRYAGAIN`).
//! - Each thread that serves has its own [`Servers`], with links of its own: no command hops between threads.
//! - On a Cluster every node has its own link and its own breaker: one that is away takes only its slots along.

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwap;
use redis::{Cmd, Value};
use tokio::sync::watch;
use tokio::task::{AbortHandle, JoinSet};

use crate::state::redis::client::script::Script;
use crate::state::redis::directory::revocations::Revocations;
use crate::state::redis::settings::{self, Address, Durability, Settings};
use crate::tls;

pub(super) mod script;
pub(super) mod url;
mod cluster;
mod connect;
mod failure;
mod info;
mod link;
mod sentinel;

pub use connect::ConnectError;
pub(super) use failure::CommandError;
pub use info::Unsuitable;

use cluster::Slots;
use connect::{Connector, Target};
use failure::{Redirect, redirected};
use link::{Link, Message};

/// How often a command may be sent somewhere else. More says that the Cluster does not know itself.
const REDIRECTIONS: usize = 4;
/// How often to look whether a Cluster can be used, at the start.
const LOOK: Duration = Duration::from_millis(5);
/// How long to wait when a slot is on its way from one node to another and its keys are on both.
const TRY_AGAIN: Duration = Duration::from_millis(5);

/// Links to all servers, for one thread. Cloning gives the same ones.
#[derive(Clone)]
pub(super) struct Servers(Arc<Inner>);

struct Inner {
    common: Arc<Common>,
    links: Mutex<HashMap<Target, (Arc<Link>, AbortHandle)>>,
    slots: ArcSwap<Slots>,
    /// How often nodes were asked for the slots.
    asked: AtomicUsize,
    /// The tasks of the links and of the topology; they end with this.
    tasks: Mutex<JoinSet<()>>,
}

/// What all links of all threads share.
pub(super) struct Common {
    pub(super) settings: Arc<Settings>,
    tls: Option<tokio_rustls::TlsConnector>,
    pub(super) revocations: Revocations,
    /// Whether the servers are a Cluster: as configured, or as a server said.
    cluster: AtomicBool,
    /// Told when the topology may have changed; counts how often.
    changed: watch::Sender<u64>,
    /// How often another server process took over: what it has may be less than what was acknowledged before.
    pub(super) failovers: Arc<AtomicU64>,
}

impl Common {
    /// # Errors
    /// [`tls::Error`] when the certificates cannot be read.
    pub(super) fn new(settings: Arc<Settings>) -> Result<Self, tls::Error> {
        let tls = settings.tls.as_ref().map(|tls| tls.config()).transpose()?;
        let cluster = AtomicBool::new(matches!(settings.servers, settings::Servers::Cluster(_)));
        Ok(Self {
            settings,
            tls: tls.map(tokio_rustls::TlsConnector::from),
            revocations: Revocations::default(),
            cluster,
            changed: watch::Sender::new(0),
            failovers: Arc::default(),
        })
    }
}

impl Servers {
    /// Links to the servers; they connect on the runtime that this is called in.
    pub(super) fn start(common: &Arc<Common>) -> Self {
        let inner = Inner {
            common: Arc::clone(common),
            links: Mutex::default(),
            slots: ArcSwap::from_pointee(Slots::default()),
            asked: AtomicUsize::new(0),
            tasks: Mutex::default(),
        };
        let servers = Self(Arc::new(inner));
        let first: Vec<_> = servers.seeds().into_iter().map(|target| servers.link_to(target)).collect();
        if let [only] = &*first {
            servers.0.slots.store(Arc::new(Slots::one(Arc::clone(only))));
        }
        servers.tasks().spawn(cluster::follow(Arc::downgrade(&servers.0), Arc::clone(common)));
        servers
    }

    /// Waits until a server was reached, or none could be.
    ///
    /// # Errors
    /// [`ConnectError`] of one of them.
    async fn reached(&self) -> Result<(), Arc<ConnectError>> {
        let links = self.all_links();
        let mut verdict = Ok(());
        for link in links {
            match link.reached().await {
                Ok(()) => return Ok(()),
                Err(error) => verdict = Err(error),
            }
        }
        verdict
    }

    /// Waits until a server was reached and all of a Cluster can be asked, or none could be reached.
    ///
    /// # Errors
    /// [`ConnectError`] of one of them.
    pub(super) async fn all_reached(&self) -> Result<(), Arc<ConnectError>> {
        self.reached().await?;
        while self.0.common.is_cluster() && !self.0.slots.load().complete() {
            tokio::time::sleep(LOOK).await;
        }
        Ok(())
    }

    /// Whether any server can be asked.
    pub(super) fn up(&self) -> bool {
        self.all_links().iter().any(|link| link.is_up())
    }

    /// Runs a script where its keys are; by its digest, and when the server does not know it, once by its text.
    ///
    /// # Errors
    /// [`CommandError`] says whether it may have run.
    pub(super) async fn run(
        &self,
        slot: u16,
        script: &Script,
        keys: &[&[u8]],
        arguments: &[&[u8]],
    ) -> Result<Value, CommandError> {
        match self.send(slot, &script.by_digest(keys, arguments)).await {
            Err(failure) if failure.is_no_script() => self.send(slot, &script.by_text(keys, arguments)).await,
            answered => answered,
        }
    }

    /// Runs a script, waits for replicas to have what it wrote, and says how many have.
    ///
    /// # Errors
    /// [`CommandError`] says whether it may have run.
    pub(super) async fn run_durably(
        &self,
        slot: u16,
        script: &Script,
        keys: &[&[u8]],
        arguments: &[&[u8]],
        durability: Durability,
    ) -> Result<(Value, u32), CommandError> {
        let durability = Some(durability).filter(|durability| durability.replicas > 0);
        let by_digest = script.by_digest(keys, arguments);
        match self.deliver(slot, Message { command: &by_digest, asking: false, durability }).await {
            Err(failure) if failure.is_no_script() => {
                let by_text = script.by_text(keys, arguments);
                self.deliver(slot, Message { command: &by_text, asking: false, durability }).await
            }
            answered => answered,
        }
    }

    /// Sends a command to the server that has the slot, wherever that is.
    ///
    /// # Errors
    /// [`CommandError`] says whether it may have run.
    pub(super) async fn send(&self, slot: u16, command: &Cmd) -> Result<Value, CommandError> {
        let message = Message { command, asking: false, durability: None };
        self.deliver(slot, message).await.map(|(answer, _)| answer)
    }

    async fn deliver(&self, slot: u16, mut message: Message<'_>) -> Result<(Value, u32), CommandError> {
        let mut link = self.0.slots.load().link(slot).ok_or(CommandError::Unreachable)?;
        let mut answered = link.send(message).await;
        for _ in 0..REDIRECTIONS {
            let Err(failure) = &answered else { break };
            match redirected(failure) {
                Some(Redirect::Moved(address)) => {
                    message.asking = false;
                    link = self.link_at(&address, &link);
                }
                Some(Redirect::Ask(address)) => {
                    message.asking = true;
                    link = self.link_at(&address, &link);
                }
                Some(Redirect::TryAgain) => tokio::time::sleep(TRY_AGAIN).await,
                None => break,
            }
            answered = link.send(message).await;
        }
        answered
    }

    /// What to connect to first.
    fn seeds(&self) -> Vec<Target> {
        match &self.0.common.settings.servers {
            settings::Servers::Single(address) => vec![Target::Server(address.clone())],
            settings::Servers::Sentinel { .. } => vec![Target::Primary],
            settings::Servers::Cluster(nodes) => nodes.iter().cloned().map(Target::Server).collect(),
        }
    }

    /// The link to a node that a redirection names. One without a host means the node that answered.
    fn link_at(&self, address: &Address, answered: &Arc<Link>) -> Arc<Link> {
        match answered.target() {
            Target::Server(same) if address.host.is_empty() => {
                self.link_to(Target::Server(Address { host: same.host.clone(), port: address.port }))
            }
            _ => self.link_to(Target::Server(address.clone())),
        }
    }

    /// The link to a server; it is made when there is none.
    fn link_to(&self, target: Target) -> Arc<Link> {
        let mut links = self.links();
        let link = links.entry(target).or_insert_with_key(|target| {
            let connector = Connector::new(target.clone(), Arc::clone(&self.0.common));
            let link = Arc::new(Link::new(connector));
            let task = self.tasks().spawn(Arc::clone(&link).keep());
            (link, task)
        });
        Arc::clone(&link.0)
    }

    /// Forgets the links to servers that are neither configured nor among these.
    fn keep_only(&self, used: &[Target]) {
        let seeds = self.seeds();
        self.links().retain(|target, (_, task)| {
            let stays = used.contains(target) || seeds.contains(target);
            if !stays {
                task.abort();
            }
            stays
        });
    }

    fn all_links(&self) -> Vec<Arc<Link>> {
        self.links().values().map(|(link, _)| Arc::clone(link)).collect()
    }

    fn links(&self) -> MutexGuard<'_, HashMap<Target, (Arc<Link>, AbortHandle)>> {
        self.0.links.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn tasks(&self) -> MutexGuard<'_, JoinSet<()>> {
        self.0.tasks.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Common {
    pub(super) fn is_cluster(&self) -> bool {
        self.cluster.load(Ordering::Relaxed)
    }

    fn succeeded(&self) {
        self.failovers.fetch_add(1, Ordering::AcqRel);
    }

    fn topology_changed(&self) {
        self.changed.send_modify(|times| *times += 1);
    }
}

impl fmt::Debug for Servers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Servers").field("configured", &self.0.common.settings.servers).finish_non_exhaustive()
    }
}
