//! The composition root: the only place that knows every concrete type. It binds everything before it serves anything.
//!
//! - Start: listeners, state, journal, then the journal's uses since the state's last write-back are replayed, so that
//!   no bucket comes back fuller than it was; then one thread per worker, one for the control plane, and one that
//!   reloads the configuration.
//! - Stop: not ready at once; for the lame-duck time everything goes on, and clients are told to go elsewhere; then no
//!   new connections, and exchanges in flight end, or are dropped when the grace period is over; then the journal and
//!   the state write out what they have, and close.

mod shutdown;
mod listeners;
mod recover;
mod certificates;
mod worker_pool;
mod active_config;
mod dispatch;
mod worker;
mod control_plane;
mod config_watcher;
mod reload;
mod systemd;
mod migrate;

use std::net::{SocketAddr, TcpListener};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;

use anyhow::Context as _;
use arc_swap::ArcSwap;
use tokio::sync::watch as latest;

use crate::admin::{ConfigStatus, Readiness};
use crate::audit::Journal;
use crate::clock::Micros;
use crate::config::Config;
use crate::dashboard;
use crate::management::Management;
use crate::metrics::Metrics;
use crate::state::State;
use crate::telemetry::LogHandle;
use crate::transport::ConnectionLimiter;
use crate::upstream::Endpoints;

use control_plane::ControlPlane;
use listeners::{BoundListeners, ControlRuntime};
use reload::ConfigReloader;
use shutdown::{DrainResult, DrainWait, Phase, ShutdownEvent};
use worker::Worker;
use worker_pool::{ConfigSnapshot, WorkerPool};

pub use certificates::Certificates;
pub use migrate::copy_state;
pub use recover::open_and_recover;
pub use shutdown::ShutdownHandle;
pub use systemd::ServiceNotifier;

/// What a gateway finds around it; nothing, unless somebody says so.
#[derive(Clone, Debug, Default)]
pub struct ProcessHandles {
    /// The process's logs, whose level the configuration has.
    pub logs: LogHandle,
    /// Whoever started the process.
    pub notifier: ServiceNotifier,
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
    _certificates_watch: certificates::CertWatcher,
    readiness: Arc<Readiness>,
    state: Arc<State>,
    journal: Journal,
    process: ProcessHandles,
    snapshot: Arc<ArcSwap<ConfigSnapshot>>,
    phase: latest::Sender<Phase>,
    threads: Vec<JoinHandle<()>>,
    drain_wait: DrainWait,
    /// Whether a lame duck comes before the drain.
    has_lame_duck: bool,
    shutdown: ShutdownHandle,
    /// Dropped when nothing is reloaded any more.
    reload: mpsc::Sender<()>,
    /// Dropped when the watchdog need not be kept quiet any more.
    _watchdog: mpsc::Sender<()>,
}

impl App {
    /// Binds, opens, replays and starts.
    ///
    /// # Errors
    /// What could not be listeners, opened or started, and why.
    pub fn start(config: Config) -> anyhow::Result<Self> {
        Self::start_with(ProcessHandles::default(), config)
    }

    /// The same, for a process.
    ///
    /// # Errors
    /// What could not be listeners, opened or started, and why.
    pub fn start_with(process: ProcessHandles, config: Config) -> anyhow::Result<Self> {
        let runtime = ControlRuntime::new()?;
        let listeners = BoundListeners::new(&config, &runtime)?;
        let metrics = Metrics::new();
        let endpoints =
            Endpoints::new(&config.upstream, &metrics).context("cannot encrypt connections to the upstream")?;
        let components = Components::open(&config, metrics, &endpoints, &runtime)?;
        let (phase, watched) = latest::channel(Phase::Serving);
        let (addresses, admin_address) = (listeners.addresses.clone(), listeners.admin.local_addr()?);
        let workers = config.workers;
        let snapshot = ConfigSnapshot::first(config, endpoints);
        let (sender, events) = mpsc::channel();
        let control = components.control(listeners.socket, listeners.admin).start(runtime.0, watched.clone())?;
        let certificates_watch = certificates::CertWatcher::start(Arc::clone(&components.certificates))?;
        let (worker_pool, mut threads) = components.workers(listeners.workers, &snapshot, &watched, &sender)?;
        threads.push(control);
        let (watchdog, end) = mpsc::channel();
        process.notifier.start_watchdog(worker_pool.clone(), watched, end)?;
        let snapshot = Arc::new(ArcSwap::from_pointee(snapshot));
        let (reload, asked) = mpsc::channel();
        threads.push(components.reload(Arc::clone(&snapshot), worker_pool, process.clone()).start(asked)?);
        process.notifier.ready("serving");
        Ok(Self {
            addresses,
            admin_address,
            management: components.management,
            certificates: components.certificates,
            _certificates_watch: certificates_watch,
            readiness: components.readiness,
            state: components.state,
            journal: components.journal,
            process,
            snapshot,
            phase,
            threads,
            drain_wait: DrainWait { events, left: workers },
            has_lame_duck: true,
            shutdown: ShutdownHandle(sender),
            reload,
            _watchdog: watchdog,
        })
    }

    /// Has the configuration file read again, now. What becomes of it is logged, counted, and told on the admin socket.
    pub fn reload(&self) {
        // The thread ends with the gateway only.
        self.reload.send(()).ok();
    }

    /// The same gateway, which will stop without a lame duck: there is none that its clients could go to.
    #[must_use]
    pub fn without_lame_duck(self) -> Self {
        Self { has_lame_duck: false, ..self }
    }

    /// What makes [`App::stop`] quicker, from another thread.
    pub fn shutdown_handle(&self) -> ShutdownHandle {
        self.shutdown.clone()
    }

    /// Drains, closes, and returns when everything is written.
    pub fn stop(mut self) {
        self.readiness.drain();
        self.process.notifier.stopping();
        drop(self.reload);
        let config = Arc::clone(&self.snapshot.load().config);
        if self.has_lame_duck && !config.lame_duck.is_zero() {
            self.phase.send_replace(Phase::LameDuck);
            self.drain_wait.wait(config.lame_duck);
        }
        self.phase.send_replace(Phase::Draining);
        match self.drain_wait.wait(config.drain) {
            DrainResult::AllEnded => {}
            DrainResult::Expedited => tracing::warn!("told to end at once: dropping what is still in flight"),
            DrainResult::TimedOut => tracing::warn!("the grace period is over: dropping what is still in flight"),
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

/// What the workers' dashboards share.
fn shared(
    settings: &dashboard::Settings,
    management: &Arc<Management>,
) -> anyhow::Result<dashboard::DashboardServices> {
    let providers = dashboard::Providers::new(settings).context("an identity provider cannot be used")?;
    let (settings, management) = (Arc::new(settings.clone()), Arc::clone(management));
    Ok(dashboard::DashboardServices { settings, providers: Arc::new(providers), management })
}

/// What the threads share.
struct Components {
    metrics: Metrics,
    state: Arc<State>,
    journal: Journal,
    management: Arc<Management>,
    dashboard: Option<dashboard::DashboardServices>,
    /// Workers that live.
    alive: Arc<AtomicUsize>,
    readiness: Arc<Readiness>,
    status: Arc<ConfigStatus>,
    connection_limiter: ConnectionLimiter,
    certificates: Arc<Certificates>,
}

impl Components {
    fn open(
        config: &Config,
        metrics: Metrics,
        endpoints: &Endpoints,
        runtime: &ControlRuntime,
    ) -> anyhow::Result<Self> {
        let certificates = Arc::new(Certificates::open(&config.listen, endpoints.tls(), metrics.tls.clone())?);
        let (state, journal) = runtime.0.block_on(open_and_recover(config, &metrics))?;
        let management = Management::new(Arc::clone(&state), journal.clone(), &config.audit, &metrics.state);
        let management = Arc::new(management.with_sessions(config.sessions()));
        let dashboard = config.session.as_ref().map(|settings| shared(settings, &management)).transpose()?;
        let (alive, workers) = (Arc::new(AtomicUsize::new(0)), config.workers);
        let (recording, deciding, serving) = (journal.clone(), Arc::clone(&state), Arc::clone(&alive));
        let readiness = Readiness::new()
            .with("audit", move || recording.accepts_requests())
            .with("state", move || deciding.available())
            .with("workers", move || serving.load(Ordering::Relaxed) == workers);
        let now = Micros::wall();
        reload::record_loaded(&metrics, now);
        let status = Arc::new(reload::initial_status(&config.source, now));
        let connection_limiter =
            ConnectionLimiter::new(config.max_connections, config.max_connections_per_address, config.proxies());
        let readiness = Arc::new(readiness);
        Ok(Self {
            metrics,
            state,
            journal,
            management,
            dashboard,
            alive,
            readiness,
            status,
            connection_limiter,
            certificates,
        })
    }

    fn control(&self, socket: tokio::net::UnixListener, http: tokio::net::TcpListener) -> ControlPlane {
        ControlPlane {
            socket,
            http,
            management: Arc::clone(&self.management),
            config: Arc::clone(&self.status),
            metrics: self.metrics.clone(),
            readiness: Arc::clone(&self.readiness),
        }
    }

    /// Starts one worker for each set of listeners.
    fn workers(
        &self,
        listeners: Vec<Vec<TcpListener>>,
        snapshot: &ConfigSnapshot,
        phase: &latest::Receiver<Phase>,
        ended: &mpsc::Sender<ShutdownEvent>,
    ) -> anyhow::Result<(WorkerPool, Vec<JoinHandle<()>>)> {
        let (mut worker_pool, mut threads) = (WorkerPool::default(), Vec::new());
        for (number, listeners) in listeners.into_iter().enumerate() {
            let worker = Worker {
                listeners,
                snapshot: snapshot.clone(),
                commands: worker_pool.join(),
                state: Arc::clone(&self.state),
                journal: self.journal.clone(),
                metrics: self.metrics.clone(),
                connection_limiter: self.connection_limiter.clone(),
                certificates: Arc::clone(&self.certificates),
                dashboard: self.dashboard.clone(),
                phase: phase.clone(),
                alive: Arc::clone(&self.alive),
                ended: ended.clone(),
            };
            threads.push(worker.start(number)?);
        }
        Ok((worker_pool, threads))
    }

    fn reload(
        &self,
        snapshot: Arc<ArcSwap<ConfigSnapshot>>,
        worker_pool: WorkerPool,
        process: ProcessHandles,
    ) -> ConfigReloader {
        ConfigReloader {
            snapshot,
            worker_pool,
            state: Arc::clone(&self.state),
            metrics: self.metrics.clone(),
            connection_limiter: self.connection_limiter.clone(),
            certificates: Arc::clone(&self.certificates),
            status: Arc::clone(&self.status),
            process,
        }
    }
}
