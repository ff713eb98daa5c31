//! Components of a gateway that its threads share: opened once at the start, handed to each thread.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;

use anyhow::Context as _;
use arc_swap::ArcSwap;
use tokio::sync::watch;

use super::certificates::Certificates;
use super::config_snapshot::ConfigSnapshot;
use super::control_plane::ControlPlane;
use super::fleet;
use super::handover::{HandoverControl, HandoverParts, Takeover};
use super::listeners::{ControlRuntime, KeptListeners};
use super::process_handles::ProcessHandles;
use super::recover::{Opener, open_stores};
use super::reload::{self, ConfigReloader};
use super::shared_handles::SharedHandles;
use super::shutdown::{Phase, ShutdownEvent};
use super::systemd::ServiceNotifier;
use super::worker::Worker;
use super::worker_pool::WorkerPool;
use crate::config::{Config, Listener, ListenerRole};
use crate::gateway::{ProcessEnd, UsageReads};
use control::admin::{Cause, ConfigStatus, Readiness};
use control::api::Api;
use control::dashboard;
use control::federation::TokenExchange;
use control::leaks::LeakReports;
use control::management;
use control::management::Management;
use control::management_api;
use domain::clock::Micros;
use edge::transport::{ConnectionLimiter, ListenerRelease, WorkerListener};
use journal::shipping::{Shippers, SinkReport};
use platform::accept_errors::AcceptErrorLog;
use platform::metrics::{Metrics, SinkLag};
use state::State;
use state::redis::{Fault, ReplicationStatus};
use upstream::{Discovery, Endpoints};

/// Components that the threads of a gateway share.
pub(super) struct Components {
    pub(super) handles: SharedHandles,
    pub(super) management: Arc<Management>,
    pub(super) readiness: Arc<Readiness>,
    /// Number of workers that run.
    live_workers: Arc<AtomicUsize>,
    /// The active configuration, as `keygate config status` shows it.
    status: Arc<ConfigStatus>,
}

impl Components {
    /// Opens certificates, state and journal, and builds everything on top of them.
    pub(super) fn open(
        config: &Config,
        metrics: Metrics,
        upstreams: &[Endpoints],
        runtime: &ControlRuntime,
        takeover: Option<&Takeover>,
    ) -> anyhow::Result<Self> {
        let certificates = Arc::new(Certificates::open(&config.listen, upstreams, metrics.tls.clone())?);
        let (state, journal) = runtime.0.block_on(open_stores(config, &metrics, Opener::Gateway(takeover)))?;
        let shippers = Shippers::start(journal.tap(), &config.shipping, &metrics.shipping)?;
        let management = Management::new(Arc::clone(&state), journal.clone(), &config.audit, &metrics.state);
        let leak_action = config.leaks.as_ref().map(|leaks| leaks.action).unwrap_or_default();
        let management = management.with_sessions(config.sessions()).with_leak_action(leak_action);
        let management = Arc::new(management.with_problem_types(config.problem_types.clone()));
        management::set_fleet(&management, fleet::open_fleet(config)?);
        let dashboard = config.session.as_ref().map(|settings| share_dashboard(settings, &management)).transpose()?;
        let is_management = |listener: &Listener| listener.role == ListenerRole::Management;
        let management_api =
            config.listen.iter().any(is_management).then(|| Api::new(&management, management_api::BASE));
        let federation = config.federation.as_ref().map(|settings| TokenExchange::new(settings, &management));
        let leaks = config.leaks.as_ref().map(|settings| LeakReports::new(settings, &management)).transpose()?;
        let connection_limiter =
            ConnectionLimiter::new(config.max_connections, config.max_connections_per_address, config.proxies());
        let usage_reads = UsageReads::default();
        let handles = SharedHandles {
            state,
            journal,
            shippers,
            metrics,
            connection_limiter,
            certificates,
            dashboard,
            management_api,
            federation,
            leaks,
            process_end: ProcessEnd::default(),
            usage_reads,
            problem_types: config.problem_types.clone(),
        };
        show_conditions(&handles);
        let now = Micros::wall();
        reload::record_loaded(&handles.metrics, now);
        let status = Arc::new(reload::initial_status(&config.source, now));
        Ok(Self { handles, management, readiness: Arc::default(), live_workers: Arc::default(), status })
    }

    /// Adds the readiness checks, which also look at the active upstreams.
    pub(super) fn check_readiness(&mut self, workers: usize, active: &Arc<ArcSwap<ConfigSnapshot>>) {
        let readiness = readiness(&self.handles, &self.live_workers, workers, Arc::clone(active));
        readiness.show(&self.handles.metrics);
        self.readiness = Arc::new(readiness);
    }

    /// The control plane over its two listeners.
    pub(super) fn control_plane(
        &self,
        socket: tokio::net::UnixListener,
        http: tokio::net::TcpListener,
        snapshot: &Arc<ArcSwap<ConfigSnapshot>>,
        handover: &HandoverControl,
        accept_errors: AcceptErrorLog,
    ) -> ControlPlane {
        ControlPlane {
            socket,
            http,
            management: Arc::clone(&self.management),
            config: Arc::clone(&self.status),
            metrics: self.handles.metrics.clone(),
            readiness: Arc::clone(&self.readiness),
            shippers: Arc::clone(&self.handles.shippers),
            snapshot: Arc::clone(snapshot),
            handover: handover.services(),
            release: handover.release.clone(),
            accept_errors,
        }
    }

    /// The parts that are handed over to a process that takes over.
    pub(super) fn handover_parts(
        &self,
        listeners: KeptListeners,
        release: ListenerRelease,
        workers: &WorkerPool,
        phase: &watch::Receiver<Phase>,
        notifier: ServiceNotifier,
    ) -> HandoverParts {
        HandoverParts {
            listeners: Arc::new(listeners),
            release,
            state: Arc::clone(&self.handles.state),
            journal: self.handles.journal.clone(),
            shippers: Arc::clone(&self.handles.shippers),
            workers: workers.clone(),
            phase: phase.clone(),
            notifier,
        }
    }

    /// Starts one worker for each set of listeners.
    pub(super) fn start_workers(
        &self,
        listeners: Vec<Vec<WorkerListener>>,
        snapshot: &ConfigSnapshot,
        phase: &watch::Receiver<Phase>,
        ended: &mpsc::Sender<ShutdownEvent>,
    ) -> anyhow::Result<(WorkerPool, Vec<JoinHandle<()>>)> {
        let mut worker_pool = WorkerPool::default();
        let mut threads = Vec::new();
        for (number, listeners) in listeners.into_iter().enumerate() {
            let worker = Worker {
                listeners,
                snapshot: snapshot.clone(),
                commands: worker_pool.add_worker(),
                handles: self.handles.clone(),
                phase: phase.clone(),
                live_workers: Arc::clone(&self.live_workers),
                ended: ended.clone(),
            };
            threads.push(worker.start(number)?);
        }
        Ok((worker_pool, threads))
    }

    /// The reloader of the active configuration.
    pub(super) fn reloader(
        &self,
        snapshot: Arc<ArcSwap<ConfigSnapshot>>,
        worker_pool: WorkerPool,
        process: ProcessHandles,
        discovery: Discovery,
    ) -> ConfigReloader {
        let handles = self.handles.clone();
        let status = Arc::clone(&self.status);
        let management = Arc::clone(&self.management);
        ConfigReloader { snapshot, worker_pool, handles, management, discovery, status, process }
    }
}

/// Shows conditions of the state and the journal in the metrics.
#[allow(clippy::cast_precision_loss, reason = "numbers for people")]
fn show_conditions(handles: &SharedHandles) {
    let state = Arc::clone(&handles.state);
    let journal = handles.journal.clone();
    let replicated = Arc::clone(&state);
    handles.metrics.show_state(move || state.is_connected());
    let numbers = |status: ReplicationStatus| {
        let ahead = status.clock_ahead as f64 / 1e6;
        [status.replicas as f64, status.lag_bytes as f64, f64::from(u8::from(status.evicts)), ahead]
    };
    let state = Arc::clone(&handles.state);
    handles.metrics.show_missing_plans(move || state.missing_plan_decisions() as f64);
    let state = Arc::clone(&handles.state);
    let faults = move || state.faults().into_iter().map(Fault::label).collect();
    handles.metrics.show_state_faults(Fault::ALL.map(Fault::label), faults);
    handles.metrics.show_replication(move || replicated.replication().map(numbers));
    handles.metrics.show_disk_low(move || journal.is_low_on_space());
    let shippers = Arc::clone(&handles.shippers);
    let lag =
        |report: SinkReport| SinkLag { sink: report.sink, records: report.lag_records, seconds: report.lag_seconds };
    handles.metrics.show_shipping(move || shippers.reports().into_iter().map(lag).collect());
}

/// The readiness checks behind `/ready`, by the names that it reports.
fn readiness(
    handles: &SharedHandles,
    live_workers: &Arc<AtomicUsize>,
    workers: usize,
    active: Arc<ArcSwap<ConfigSnapshot>>,
) -> Readiness {
    let of_journal = || handles.journal.clone();
    let (journal, recorded, synced) = (of_journal(), of_journal(), of_journal());
    let of_state = || Arc::clone(&handles.state);
    let (state, servers) = (of_state(), of_state());
    let shippers = Arc::clone(&handles.shippers);
    let live_workers = Arc::clone(live_workers);
    let broken = |reason: &'static str| {
        let state = of_state();
        move || {
            state
                .identity()
                .discontinuity()
                .filter(|found| found.reason() == reason)
                .map(|found| found.to_string().into())
        }
    };
    Readiness::new()
        .with("audit", move || unless(journal.accepts_requests(), "records cannot be written"))
        .with("state", move || state.fault().map(|fault| fault.label().into()))
        .with("state_lost", broken("state_lost"))
        .with("state_older", broken("state_older"))
        .with("workers", move || {
            unless(live_workers.load(Ordering::Relaxed) == workers, "a worker thread has ended after a panic")
        })
        .with("upstream", move || {
            let is_down = active.load().upstreams.iter().any(Endpoints::is_required_and_down);
            unless(!is_down, "every endpoint of an upstream with `health.required` fails its checks")
        })
        .with_warning("audit_unrecorded", move || {
            unless(recorded.is_available() || !recorded.accepts_requests(), "requests are served without a record")
        })
        .with_warning("audit_sync", move || unless(!synced.has_failed_sync(), "a sync of the journal has failed"))
        .with_warning("audit_sinks", move || shippers.failing().map(Cause::Owned))
        .with_warning("state_degraded", move || faults_of_some(&servers))
}

/// The faults that decisions meet while requests are admitted: of some servers of a Cluster, or by `known_keys`.
fn faults_of_some(state: &State) -> Option<Cause> {
    let faults = state.faults();
    let is_in_part = !faults.is_empty() && state.is_available();
    is_in_part.then(|| faults.into_iter().map(Fault::label).collect::<Vec<_>>().join(", ").into())
}

/// This cause, unless a part of the gateway works.
fn unless(works: bool, cause: &'static str) -> Option<Cause> {
    (!works).then_some(Cause::Borrowed(cause))
}

/// The part of the dashboard that all workers share: settings, identity providers and management.
fn share_dashboard(
    settings: &dashboard::Settings,
    management: &Arc<Management>,
) -> anyhow::Result<dashboard::DashboardServices> {
    dashboard::DashboardServices::new(settings, management).context("an identity provider cannot be used")
}
