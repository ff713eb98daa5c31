//! Control plane thread: serves the admin socket and the admin listener, maintains the endpoints of the upstreams,
//! announces budgets that are nearly spent, and sweeps unused keys once a day.

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use arc_swap::ArcSwap;
use tokio::sync::watch;
use tokio::time::sleep;

use super::config_snapshot::ConfigSnapshot;
use super::shutdown::{Phase, wait_for_phase};
use control::admin::{self, ConfigStatus, HandoverServices, Readiness, SocketServices};
use control::api::Api;
use control::management;
use control::management::{Actor, Management, UnixUser};
use domain::clock;
use domain::counted::counted;
use edge::transport::ListenerRelease;
use journal::shipping::Shippers;
use platform::accept_errors::AcceptErrorLog;
use platform::metrics::Metrics;
use upstream::{self, Endpoints};

/// Time that the two servers have to finish once the workers have ended; then they are dropped. A client that does not
/// read its answer must not keep the process alive.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);
/// Time from the start of a gateway to its first sweep of unused keys: what it reports and replays of earlier uses is
/// over by then.
const FIRST_SWEEP: Duration = Duration::from_secs(15 * 60);
/// Time from one sweep to the next.
const SWEEP_INTERVAL: Duration = Duration::from_secs(24 * 3600);

/// Listeners and services of the control plane.
pub(super) struct ControlPlane {
    pub(super) socket: tokio::net::UnixListener,
    pub(super) http: tokio::net::TcpListener,
    pub(super) management: Arc<Management>,
    pub(super) config: Arc<ConfigStatus>,
    pub(super) metrics: Metrics,
    pub(super) readiness: Arc<Readiness>,
    /// The shippers, whose sinks are reported.
    pub(super) shippers: Arc<Shippers>,
    /// The active snapshot, whose endpoints are maintained.
    pub(super) snapshot: Arc<ArcSwap<ConfigSnapshot>>,
    /// Hand-overs to a new process.
    pub(super) handover: HandoverServices,
    /// When the listening sockets are released, another process serves them.
    pub(super) release: ListenerRelease,
    /// Log of failed accepts.
    pub(super) accept_errors: AcceptErrorLog,
}

impl ControlPlane {
    /// Starts the thread, which runs `runtime`.
    pub(super) fn start(
        self,
        runtime: tokio::runtime::Runtime,
        phase: watch::Receiver<Phase>,
    ) -> anyhow::Result<JoinHandle<()>> {
        let thread = std::thread::Builder::new().name("control".into());
        Ok(thread.spawn(move || runtime.block_on(self.serve(phase)))?)
    }

    /// Serves until the workers have ended, so that `/ready` answers "draining" during the whole drain.
    async fn serve(self, phase: watch::Receiver<Phase>) {
        let ending = wait_for_phase(phase.clone(), Phase::Ending);
        let timed_out = async {
            ending.await;
            sleep(CLOSE_TIMEOUT).await;
        };
        let release = self.release;
        let ended = wait_for_phase(phase.clone(), Phase::Ending);
        let shippers = self.shippers;
        let snapshot = Arc::clone(&self.snapshot);
        let reported = self.snapshot;
        let sweep = sweep_daily(Arc::clone(&self.management));
        let management = Arc::clone(&self.management);
        let services = SocketServices {
            api: Api::new(&self.management, admin::API_PATH),
            config: self.config,
            upstreams: Arc::new(move || reported.load().upstreams.iter().flat_map(Endpoints::report).collect()),
            shipping: Arc::new(move || shippers.reports()),
            handover: self.handover,
            accept_errors: self.accept_errors.clone(),
        };
        let closed = || async {
            tokio::select! {
                () = release.wait() => {}
                () = wait_for_phase(phase.clone(), Phase::Ending) => {}
            }
        };
        let operations = admin::serve_socket(self.socket, services, closed());
        let observation = admin::serve_http(self.http, self.metrics, self.readiness, self.accept_errors, closed());
        tokio::select! {
            // None of these completes.
            () = upstream::maintain(move || Arc::clone(&snapshot.load().upstreams)) => {}
            () = sweep => {}
            () = management::end_left_changes(&management) => {}
            () = management::announce_near_budgets(&management) => {}
            // The endpoints are maintained while the workers serve.
            () = async { tokio::join!(operations, observation, ended); } => {}
            () = timed_out => {}
        }
    }
}

/// Sweeps unused keys once a day, and announces the ends of others, for as long as the gateway runs. Of several
/// gateways each does: what one has disabled or announced the others leave as it is.
async fn sweep_daily(management: Arc<Management>) {
    let actor = Actor::operator(UnixUser::of_process(rustix::process::getuid().as_raw(), None));
    sleep(FIRST_SWEEP).await;
    loop {
        match management::sweep_unused_keys(&management, &actor, clock::now()).await {
            Ok(0) => {}
            Ok(keys) => tracing::info!("{} disabled for being unused", counted(&keys, "key")),
            Err(error) => tracing::warn!(error = error.in_full(), "cannot look for unused keys; trying again tomorrow"),
        }
        match management::announce_ends(&management, clock::now()).await {
            Ok(0) => {}
            Ok(ends) => tracing::info!(
                "{} announced: keys and tokens that expire, or are disabled for being unused; the audit has a record \
                 of each",
                counted(&ends, "end")
            ),
            Err(error) => {
                tracing::warn!(error = error.in_full(), "cannot look for keys that expire; trying again tomorrow");
            }
        }
        sleep(SWEEP_INTERVAL).await;
    }
}
