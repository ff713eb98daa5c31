//! The composition root: the only place that knows every concrete type. It binds everything before it serves anything.
//!
//! - Start: listeners, state, journal, then the journal's uses since the state's last write-back are replayed, so that
//!   no bucket comes back fuller than it was; then one thread per worker, and one for the control plane.
//! - Stop: not ready at once; no new connections; exchanges in flight end, or are dropped when the grace period is over;
//!   then the journal and the state write out what they have, and close.

mod certificates;
mod copy;
mod worker;

use std::net::{SocketAddr, TcpListener};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use tokio::sync::watch;

use crate::admin::{self, Readiness};
use crate::audit::Journal;
use crate::clock::Micros;
use crate::config::Config;
use crate::gateway::Attempts;
use crate::management::Management;
use crate::metrics::Metrics;
use crate::state::embedded::Replay;
use crate::state::{self, Embedded, Redis, State};
use crate::transport::{self, Capacity};
use crate::upstream::Endpoints;

pub use certificates::Certificates;
pub use copy::copy_state;
use worker::Worker;

/// How far before the state's last write-back the journal is read: the write-back notes its time when it ends, and a
/// use may be recorded a little after it was decided. Uses have numbers, so reading too far replays nothing twice.
const REPLAY_MARGIN: Duration = Duration::from_secs(60);
/// How long the parts that have been told to end at once may take to do so.
const LAST_RESORT: Duration = Duration::from_secs(5);

/// What the gateway's threads are told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Phase {
    Serving,
    /// Take nothing new, end what is in flight.
    Draining,
    /// Drop what is still in flight.
    Ending,
}

/// A running gateway.
pub struct App {
    /// Where clients connect.
    pub addresses: Vec<SocketAddr>,
    /// Where `/metrics`, `/live` and `/ready` are.
    pub admin_address: SocketAddr,
    /// Everything that can be done to the directory.
    pub management: Arc<Management>,
    /// What the encrypted listeners show.
    pub certificates: Arc<Certificates>,
    _certificates_watch: certificates::Watch,
    readiness: Arc<Readiness>,
    state: Arc<State>,
    journal: Journal,
    phase: watch::Sender<Phase>,
    threads: Vec<JoinHandle<()>>,
    ended: mpsc::Receiver<()>,
    grace: Duration,
}

impl App {
    /// Binds, opens, replays and starts.
    ///
    /// # Errors
    /// What could not be bound, opened or started, and why.
    pub fn start(config: Config) -> anyhow::Result<Self> {
        let runtime = Runtime::new()?;
        let bound = Bound::new(&config, &runtime)?;
        let metrics = Metrics::new();
        let endpoints =
            Endpoints::new(&config.upstream, &metrics).context("cannot encrypt connections to the upstream")?;
        let certificates = Arc::new(Certificates::open(&config.listen, endpoints.tls(), metrics.tls.clone())?);
        let (state, journal) = runtime.0.block_on(open(&config, &metrics))?;
        let management = Arc::new(Management::new(Arc::clone(&state), journal.clone(), &metrics.state));
        let recording = journal.clone();
        let (alive, workers) = (Arc::new(AtomicUsize::new(0)), config.workers);
        let (serving, deciding) = (Arc::clone(&alive), Arc::clone(&state));
        let readiness = Readiness::new()
            .with("audit", move || recording.admits())
            .with("state", move || deciding.available())
            .with("workers", move || serving.load(Ordering::Relaxed) == workers);
        let readiness = Arc::new(readiness);
        #[allow(clippy::cast_precision_loss, reason = "seconds since 1970")]
        metrics.config_loaded.set(Micros::wall().0 as f64 / 1e6);

        let (phase, watched) = watch::channel(Phase::Serving);
        let (end, ended) = mpsc::channel();
        let (addresses, admin_address) = (bound.addresses.clone(), bound.admin.local_addr()?);
        let control = Control {
            socket: bound.socket,
            http: bound.admin,
            management: Arc::clone(&management),
            metrics: metrics.clone(),
            readiness: Arc::clone(&readiness),
        };
        let certificates_watch = certificates::Watch::start(Arc::clone(&certificates))?;
        let mut threads = vec![control.start(runtime.0, watched.clone())?];
        let capacity = Capacity::new(config.max_connections, config.max_connections_per_address, config.proxies());
        let attempts = Attempts::new(config.bad_keys);
        let grace = config.drain;
        let config = Arc::new(config);
        for (number, listeners) in bound.workers.into_iter().enumerate() {
            let worker = Worker {
                listeners,
                config: Arc::clone(&config),
                certificates: Arc::clone(&certificates),
                state: Arc::clone(&state),
                journal: journal.clone(),
                metrics: metrics.clone(),
                endpoints: endpoints.clone(),
                capacity: capacity.clone(),
                attempts: attempts.clone(),
                phase: watched.clone(),
                alive: Arc::clone(&alive),
                ended: end.clone(),
            };
            threads.push(worker.start(number)?);
        }
        Ok(Self {
            addresses,
            admin_address,
            management,
            certificates,
            _certificates_watch: certificates_watch,
            readiness,
            state,
            journal,
            phase,
            threads,
            ended,
            grace,
        })
    }

    /// Drains, closes, and returns when everything is written.
    pub fn stop(self) {
        self.readiness.drain();
        self.phase.send_replace(Phase::Draining);
        let workers = self.threads.len() - 1;
        let deadline = Instant::now() + self.grace;
        let drained =
            (0..workers).all(|_| self.ended.recv_timeout(deadline.saturating_duration_since(Instant::now())).is_ok());
        if !drained {
            tracing::warn!("the grace period is over: dropping what is still in flight");
        }
        self.phase.send_replace(Phase::Ending);
        self.threads.into_iter().for_each(join);
        let closing = async {
            self.journal.close().await;
            self.state.close().await;
        };
        match tokio::runtime::Builder::new_current_thread().enable_all().build() {
            Ok(runtime) => runtime.block_on(closing),
            Err(error) => tracing::error!(%error, "cannot close the state in order; it will recover at the next start"),
        }
    }
}

fn join(thread: JoinHandle<()>) {
    if thread.join().is_err() {
        tracing::error!("a thread of the gateway panicked");
    }
}

/// The control plane's runtime: its listeners are bound on it, and its thread runs it.
struct Runtime(tokio::runtime::Runtime);

impl Runtime {
    fn new() -> anyhow::Result<Self> {
        Ok(Self(tokio::runtime::Builder::new_current_thread().enable_all().build()?))
    }
}

/// All listeners, bound before anything is served.
struct Bound {
    /// For each worker, its listener on each address.
    workers: Vec<Vec<TcpListener>>,
    addresses: Vec<SocketAddr>,
    admin: tokio::net::TcpListener,
    socket: tokio::net::UnixListener,
}

impl Bound {
    fn new(config: &Config, runtime: &Runtime) -> anyhow::Result<Self> {
        let _entered = runtime.0.enter();
        let mut workers: Vec<Vec<TcpListener>> = (0..config.workers).map(|_| Vec::new()).collect();
        let mut addresses = Vec::new();
        for listener in &config.listen {
            let address = listener.address;
            let listeners =
                transport::bind(address, config.workers).with_context(|| format!("cannot listen on {address}"))?;
            addresses.push(listeners[0].local_addr()?);
            workers.iter_mut().zip(listeners).for_each(|(worker, listener)| worker.push(listener));
        }
        let admin = TcpListener::bind(config.admin.address)
            .with_context(|| format!("cannot listen on {} (admin.address)", config.admin.address))?;
        admin.set_nonblocking(true)?;
        let admin = tokio::net::TcpListener::from_std(admin)?;
        let socket = admin::bind_socket(&config.admin.socket)?;
        Ok(Self { workers, addresses, admin, socket })
    }
}

/// Opens state and journal under their locks, and hands the one's uses to the other.
///
/// # Errors
/// What could not be opened, and why; [`crate::state::embedded::OpenError`] and [`crate::audit::OpenError`] are among
/// the causes.
pub async fn open(config: &Config, metrics: &Metrics) -> anyhow::Result<(Arc<State>, Journal)> {
    let journal =
        || Journal::open(config.audit.clone(), metrics.audit.clone()).context("cannot open the audit journal");
    match &config.state {
        state::Settings::Embedded(settings) => {
            let state = Embedded::open(settings).context("cannot open the state")?;
            let journal = journal()?;
            replay(&state, &journal)?;
            Ok((Arc::new(State::Embedded(state)), journal))
        }
        state::Settings::Redis(settings) => {
            let journal = journal()?;
            let state = Redis::open((**settings).clone()).await.context("cannot open the state")?;
            Ok((Arc::new(State::Redis(state)), journal))
        }
    }
}

/// Hands the uses that the journal knows of to the state.
fn replay(state: &Embedded, journal: &Journal) -> anyhow::Result<()> {
    let since = state.written_back_at().before(REPLAY_MARGIN);
    let seen = journal.uses_since(since).context("cannot read the audit journal")?;
    let uses: Vec<Replay> =
        seen.iter().map(|use_| Replay { key: use_.key, time: use_.time, number: use_.number }).collect();
    let replayed = state.replay(&uses);
    if replayed > 0 {
        tracing::info!(replayed, "uses since the last write-back were replayed from the audit journal");
    }
    Ok(())
}

/// The control plane, on a thread of its own.
struct Control {
    socket: tokio::net::UnixListener,
    http: tokio::net::TcpListener,
    management: Arc<Management>,
    metrics: Metrics,
    readiness: Arc<Readiness>,
}

impl Control {
    fn start(self, runtime: tokio::runtime::Runtime, phase: watch::Receiver<Phase>) -> anyhow::Result<JoinHandle<()>> {
        let thread = std::thread::Builder::new().name("control".into());
        Ok(thread.spawn(move || runtime.block_on(self.serve(phase)))?)
    }

    /// Serves until the workers have ended: a draining gateway still says that it is draining.
    async fn serve(self, phase: watch::Receiver<Phase>) {
        let ending = reached(phase.clone(), Phase::Ending);
        let last_resort = async {
            ending.await;
            tokio::time::sleep(LAST_RESORT).await;
        };
        let operations = admin::serve_socket(self.socket, self.management, reached(phase.clone(), Phase::Ending));
        let observation = admin::serve_http(self.http, self.metrics, self.readiness, reached(phase, Phase::Ending));
        tokio::select! {
            () = async { tokio::join!(operations, observation); } => {}
            () = last_resort => {}
        }
    }
}

/// Completes when the gateway has come to a phase, or is gone.
async fn reached(mut phase: watch::Receiver<Phase>, wanted: Phase) {
    if phase.wait_for(|phase| *phase >= wanted).await.is_err() {
        tracing::debug!("the gateway is gone");
    }
}
