//! The control plane, on a thread of its own.

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use tokio::sync::watch;

use super::shutdown::{Phase, wait_for_phase};
use crate::admin::{self, ConfigStatus, Readiness};
use crate::management::Management;
use crate::metrics::Metrics;

/// How long the parts that have been told to end at once may take to do so.
const LAST_RESORT: Duration = Duration::from_secs(5);

/// What the control plane is made of.
pub(super) struct ControlPlane {
    pub(super) socket: tokio::net::UnixListener,
    pub(super) http: tokio::net::TcpListener,
    pub(super) management: Arc<Management>,
    pub(super) config: Arc<ConfigStatus>,
    pub(super) metrics: Metrics,
    pub(super) readiness: Arc<Readiness>,
}

impl ControlPlane {
    pub(super) fn start(
        self,
        runtime: tokio::runtime::Runtime,
        phase: watch::Receiver<Phase>,
    ) -> anyhow::Result<JoinHandle<()>> {
        let thread = std::thread::Builder::new().name("control".into());
        Ok(thread.spawn(move || runtime.block_on(self.serve(phase)))?)
    }

    /// Serves until the workers have ended: a draining gateway still says that it is draining.
    async fn serve(self, phase: watch::Receiver<Phase>) {
        let ending = wait_for_phase(phase.clone(), Phase::Ending);
        let last_resort = async {
            ending.await;
            tokio::time::sleep(LAST_RESORT).await;
        };
        let ended = wait_for_phase(phase.clone(), Phase::Ending);
        let operations = admin::serve_socket(self.socket, self.management, self.config, ended);
        let observation =
            admin::serve_http(self.http, self.metrics, self.readiness, wait_for_phase(phase, Phase::Ending));
        tokio::select! {
            () = async { tokio::join!(operations, observation); } => {}
            () = last_resort => {}
        }
    }
}
