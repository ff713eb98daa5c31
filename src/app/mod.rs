//! Composition root: builds a gateway from its configuration, runs its threads, and stops it.
//!
//! This module is the only one that knows every concrete type.
//!
//! - Start: bind all listeners; open the state and the journal; replay the journaled uses that the state had not
//!   written back, so that no bucket comes back fuller than it was; then start one thread per worker, one for the
//!   control plane, and one that reloads the configuration.
//! - Stop: report "not ready"; serve on for the lame-duck time while clients are asked to reconnect elsewhere; accept
//!   no new connections and finish the exchanges in flight, or drop them when the grace period is over; flush and close
//!   the journal and the state.

mod process_handles;
mod systemd;
mod shutdown;
mod listeners;
mod activation;
mod handover;
mod recover;
mod run_marker;
mod certificates;
mod config_snapshot;
mod shared_handles;
mod components;
mod worker_pool;
mod worker;
mod active_config;
mod dispatch;
mod control_plane;
mod fleet;
mod config_watcher;
mod reload;
mod stop;
mod watchdog;

use std::net::SocketAddr;
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;

use anyhow::Context as _;
use arc_swap::ArcSwap;
use tokio::sync::watch;

use crate::config::{Config, Upstream};
use crate::gateway::ProcessEnd;
use control::admin::Readiness;
use control::management::Management;
use journal::audit::{self, Journal};
use journal::shipping::Shippers;
use platform::metrics::Metrics;
use platform::telemetry::access_log::AccessLog;
use state::State;
use upstream::{Discovery, Endpoints};

use certificates::CertWatcher;
use components::Components;
use config_snapshot::ConfigSnapshot;
use handover::{HandoverControl, Takeover};
use listeners::{BoundListeners, ControlRuntime, InheritedListeners};
use reload::ReloadRequest;
use run_marker::RunMarker;
use shutdown::{DrainWait, Phase};

pub use certificates::Certificates;
pub use process_handles::{ProcessHandles, Succession};
pub use recover::open_and_recover;
pub use shutdown::ShutdownHandle;
pub use systemd::ServiceNotifier;

/// A running gateway.
pub struct App {
    /// Addresses of the listeners, in the order of the configuration.
    pub addresses: Vec<SocketAddr>,
    /// Address of `/metrics`, `/live` and `/ready`.
    pub admin_address: SocketAddr,
    /// Operations on organizations, users, keys and sessions.
    pub management: Arc<Management>,
    /// Certificates of the encrypted listeners and of connections to the upstream.
    pub certificates: Arc<Certificates>,
    _cert_watcher: CertWatcher,
    readiness: Arc<Readiness>,
    state: Arc<State>,
    journal: Journal,
    shippers: Arc<Shippers>,
    /// Stage of the process on the way to its end, for other proxies.
    process_end: ProcessEnd,
    process: ProcessHandles,
    /// The active snapshot; the reloader replaces it.
    snapshot: Arc<ArcSwap<ConfigSnapshot>>,
    phase: watch::Sender<Phase>,
    threads: Vec<JoinHandle<()>>,
    drain_wait: DrainWait,
    /// True when a lame-duck time precedes the drain.
    has_lame_duck: bool,
    shutdown: ShutdownHandle,
    /// Requests a reload. Dropping it ends the reload thread.
    reload: Arc<mpsc::Sender<ReloadRequest>>,
    handover: HandoverControl,
    running: RunMarker,
    /// Dropping it ends the watchdog thread.
    _watchdog: mpsc::Sender<()>,
}

impl App {
    /// Starts a gateway without process facilities.
    ///
    /// # Errors
    /// The listener, store, certificate or thread that could not be bound, opened or started, and the cause.
    pub fn start(config: Config) -> anyhow::Result<Self> {
        Self::start_with(ProcessHandles::default(), config)
    }

    /// Starts a gateway with the facilities of its process.
    ///
    /// # Errors
    /// As [`App::start`].
    pub fn start_with(process: ProcessHandles, mut config: Config) -> anyhow::Result<Self> {
        let runtime = ControlRuntime::new()?;
        // Before anything else is opened: an old process that cannot hand over keeps serving.
        let (takeover, inherited) = inherit(&config, process.succession)?;
        let listeners = BoundListeners::new(&config, &runtime, inherited)?;
        let admin_address = listeners.admin.local_addr()?;
        let metrics = metrics(&config, &process);
        let (reload, requests) = mpsc::channel();
        let reload = Arc::new(reload);
        let discovery = start_discovery(&metrics, &reload)?;
        // Waits until all names were looked up: upstreams open with these addresses, and later changes come by reload.
        discovery.resolve(config.upstreams.iter_mut().map(|upstream| (&mut upstream.settings, &upstream.discovery)))?;
        let upstreams = open_upstreams(&config, &metrics)?;
        let access_log = open_access_log(&config, &metrics)?;
        let mut components = Components::open(&config, metrics, &upstreams, &runtime, takeover.as_ref())?;
        let mut running = RunMarker::begin(&config.audit.path, takeover.is_some());
        let (phase, phases) = watch::channel(Phase::Serving);
        let (ended, events) = mpsc::channel();
        let drain_wait = DrainWait { events, running_workers: config.workers };
        let snapshot = ConfigSnapshot::new(config, upstreams, access_log, &components.handles.metrics)?;
        let active = Arc::new(ArcSwap::from_pointee(snapshot.clone()));
        components.check_readiness(snapshot.config.workers, &active);
        let certificates = Arc::clone(&components.handles.certificates);
        let cert_watcher = CertWatcher::start(certificates, snapshot.trace_exporters())?;
        let (workers, mut threads) = components.start_workers(listeners.workers, &snapshot, &phases, &ended)?;
        let parts = components.handover_parts(listeners.kept, listeners.release, &workers, &phases, process.notifier);
        let handover = HandoverControl::new(&snapshot.config, parts, takeover.as_ref());
        let BoundListeners { socket, admin, accept_errors, addresses, .. } = listeners;
        let control = components.control_plane(socket, admin, &active, &handover, accept_errors);
        let control = control.start(runtime.0, phases.clone())?;
        let watchdog = watchdog::start(process.notifier, workers.clone(), phases)?;
        discovery.follow(snapshot.config.upstreams.iter().map(|upstream| (&upstream.settings, &upstream.discovery)));
        let reloader = components.reloader(Arc::clone(&active), workers, process.clone(), discovery);
        threads.extend([control, reloader.start(requests)?]);
        finish(takeover, &components.handles.state, &mut running)?;
        process.notifier.notify_ready("serving");
        Ok(Self {
            handover,
            running,
            addresses,
            admin_address,
            management: components.management,
            certificates: components.handles.certificates,
            _cert_watcher: cert_watcher,
            readiness: components.readiness,
            state: components.handles.state,
            journal: components.handles.journal,
            shippers: components.handles.shippers,
            process_end: components.handles.process_end,
            process,
            snapshot: active,
            phase,
            threads,
            drain_wait,
            has_lame_duck: true,
            shutdown: ShutdownHandle(ended),
            reload,
            _watchdog: watchdog,
        })
    }

    /// Requests that the configuration file is read again now. The log, the metrics and the admin socket report the
    /// result.
    pub fn reload(&self) {
        // The thread that receives this ends only with the gateway.
        self.reload.send(ReloadRequest::File).ok();
    }

    /// The same gateway, which will stop without a lame duck: for gateways whose clients have no other to go to.
    #[must_use]
    pub fn without_lame_duck(self) -> Self {
        Self { has_lame_duck: false, ..self }
    }

    /// A handle that expedites [`App::stop`] from another thread.
    pub fn shutdown_handle(&self) -> ShutdownHandle {
        self.shutdown.clone()
    }
}

/// Listening sockets of a gateway that this one replaces, or of systemd.
fn inherit(config: &Config, succession: Succession) -> anyhow::Result<(Option<Takeover>, InheritedListeners)> {
    let replaces = match succession {
        Succession::None => return Ok((None, InheritedListeners::default())),
        Succession::FromDraining => false,
        Succession::Replace => {
            // The running gateway has the key in its memory, and goes on with it when this process ends here.
            audit::check_signing_key(&config.audit).context("cannot read the key that signs checkpoints")?;
            true
        }
    };
    let activated = activation::take_sockets(config)?;
    // No other process serves an admin socket that systemd passes to this one.
    if activated.has_admin_socket() {
        return Ok((None, activated));
    }
    match Takeover::begin(config, replaces)? {
        Some((takeover, listeners)) => Ok((Some(takeover), listeners)),
        None => Ok((None, activated)),
    }
}

/// Has the process drain that this one takes over from, if there is one. Call when the workers have started, and
/// connections queue at the shared sockets.
fn finish(takeover: Option<Takeover>, state: &Arc<State>, running: &mut RunMarker) -> anyhow::Result<()> {
    if let Some(takeover) = takeover {
        takeover.finish(state)?;
        running.set();
    }
    Ok(())
}

fn metrics(config: &Config, process: &ProcessHandles) -> Metrics {
    let metrics = Metrics::new();
    metrics.show_log(process.logs.metrics());
    if config.otel_metrics { metrics.with_conventions() } else { metrics }
}

/// Starts discovery. What it finds goes to the thread that reloads the configuration, as long as that runs.
fn start_discovery(metrics: &Metrics, reload: &Arc<mpsc::Sender<ReloadRequest>>) -> anyhow::Result<Discovery> {
    let reload = Arc::downgrade(reload);
    let publish = move |discovered| {
        if let Some(reload) = reload.upgrade() {
            // The receiver is gone when the gateway stops.
            reload.send(ReloadRequest::Endpoints(discovered)).ok();
        }
    };
    Discovery::start(metrics.discovery.clone(), publish).context("cannot start the discovery of endpoints")
}

fn open_upstreams(config: &Config, metrics: &Metrics) -> anyhow::Result<Arc<[Endpoints]>> {
    let open = |upstream: &Upstream| {
        let opened = Endpoints::new(&upstream.settings, metrics);
        opened.with_context(|| format!("cannot encrypt connections to the upstream `{}`", upstream.settings.name))
    };
    config.upstreams.iter().map(open).collect()
}

/// Opens the access log, if one is configured.
fn open_access_log(config: &Config, metrics: &Metrics) -> anyhow::Result<Option<AccessLog>> {
    let open = |settings| AccessLog::open(settings, &metrics.access_log);
    config.access_log.as_ref().map(open).transpose().context("cannot open the access log (telemetry.access_log)")
}
