//! One worker: a thread with its own runtime, its own listeners and its own upstream connections.
//!
//! Each request is served by the snapshot that is in force when it comes; one that is in flight ends under its own.
//!
//! When the runtime is dropped, so is whatever is still in flight, which closes its audit entries and gives back its slots.

use std::convert::Infallible;
use std::net::TcpListener;
use std::rc::Rc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;

use anyhow::Context as _;
use hyper::service::service_fn;
use tokio::runtime::{Builder, LocalOptions, LocalRuntime};
use tokio::sync::{mpsc as commands, watch};

use super::Certificates;
use super::active_config::{ActiveConfig, SharedHandles};
use super::shutdown::{Phase, ShutdownEvent, wait_for_phase};
use super::worker_pool::{ConfigSnapshot, WorkerCommand};
use crate::audit::Journal;
use crate::dashboard;
use crate::metrics::Metrics;
use crate::state::State;
use crate::transport::{self, ConnectionLimiter};

/// What a worker is made of. The listeners are its own; the rest it shares.
pub(super) struct Worker {
    pub(super) listeners: Vec<TcpListener>,
    pub(super) snapshot: ConfigSnapshot,
    pub(super) commands: commands::Receiver<WorkerCommand>,
    pub(super) certificates: Arc<Certificates>,
    pub(super) dashboard: Option<dashboard::DashboardServices>,
    pub(super) state: Arc<State>,
    pub(super) journal: Journal,
    pub(super) metrics: Metrics,
    pub(super) connection_limiter: ConnectionLimiter,
    pub(super) phase: watch::Receiver<Phase>,
    /// How many workers there are.
    pub(super) alive: Arc<AtomicUsize>,
    /// Told when the worker has drained.
    pub(super) ended: mpsc::Sender<ShutdownEvent>,
}

/// A worker that lives; counted, and told of when it ends, also by a panic.
struct Alive {
    count: Arc<AtomicUsize>,
    ended: mpsc::Sender<ShutdownEvent>,
}

impl Alive {
    fn new(worker: &Worker) -> Self {
        worker.alive.fetch_add(1, Ordering::Relaxed);
        Self { count: Arc::clone(&worker.alive), ended: worker.ended.clone() }
    }
}

impl Drop for Alive {
    fn drop(&mut self) {
        self.count.fetch_sub(1, Ordering::Relaxed);
        // The other end is gone only when nobody waits for us.
        self.ended.send(ShutdownEvent::WorkerEnded).ok();
    }
}

impl Worker {
    /// Starts the thread, and returns when it has its runtime.
    ///
    /// A local runtime runs its tasks where they are spawned: nothing of a request is shared, locked or sent, and a
    /// task that wakes another costs no system call.
    pub(super) fn start(self, number: usize) -> anyhow::Result<JoinHandle<()>> {
        let (made, is_made) = mpsc::sync_channel(1);
        let thread = std::thread::Builder::new().name(format!("worker-{number}"));
        let thread = thread.spawn(move || {
            let runtime = Builder::new_current_thread().enable_all().build_local(LocalOptions::default());
            let (runtime, result) = runtime.map_or_else(|error| (None, Err(error)), |runtime| (Some(runtime), Ok(())));
            // The other end waits for exactly this.
            made.send(result).ok();
            if let Some(runtime) = runtime {
                self.run(runtime);
            }
        })?;
        is_made.recv().context("the worker died at its start")?.context("cannot make a worker's runtime")?;
        Ok(thread)
    }

    fn run(self, runtime: LocalRuntime) {
        let _alive = Alive::new(&self);
        let phase = self.phase.clone();
        runtime.block_on(self.serve());
        if *phase.borrow() == Phase::Serving {
            tracing::error!("a worker has ended though nobody told it to: this gateway is not ready any more");
        }
        // Drops what is in flight, and waits for no name that is still being resolved.
        runtime.shutdown_background();
    }

    async fn serve(self) {
        let handles = SharedHandles {
            state: State::for_thread(&self.state).await,
            journal: self.journal,
            metrics: self.metrics,
            connection_limiter: self.connection_limiter,
            certificates: self.certificates,
            dashboard: self.dashboard,
        };
        let active_config = ActiveConfig::new(handles, &self.snapshot);
        tokio::task::spawn_local(run_commands(self.commands, active_config.clone()));
        let served: Vec<_> = self
            .listeners
            .into_iter()
            .enumerate()
            .map(|(number, listener)| {
                tokio::task::spawn_local(serve(listener, number, self.phase.clone(), active_config.clone()))
            })
            .collect();
        let drained = async {
            for listener in served {
                match listener.await {
                    Ok(Ok(())) => {}
                    Ok(Err(error)) => tracing::error!(%error, "a listener ended"),
                    Err(error) => tracing::error!(%error, "a listener panicked"),
                }
            }
        };
        tokio::select! {
            () = drained => {}
            () = wait_for_phase(self.phase.clone(), Phase::Ending) => {}
        }
    }
}

/// Carries out commands until nobody gives any.
async fn run_commands(mut commands: commands::Receiver<WorkerCommand>, active_config: ActiveConfig) {
    while let Some(command) = commands.recv().await {
        let acked = match command {
            WorkerCommand::ApplyConfig(snapshot, acked) => {
                active_config.apply(&snapshot);
                acked
            }
            WorkerCommand::Ping(acked) => acked,
        };
        // Whoever asked may have stopped waiting.
        acked.send(()).ok();
    }
}

async fn serve(
    listener: TcpListener,
    number: usize,
    phase: watch::Receiver<Phase>,
    active_config: ActiveConfig,
) -> std::io::Result<()> {
    let (lame_duck, draining) =
        (wait_for_phase(phase.clone(), Phase::LameDuck), wait_for_phase(phase, Phase::Draining));
    let served = active_config.clone();
    transport::serve(
        listener,
        move || active_config.serving(number),
        lame_duck,
        draining,
        move |peer, upgrade_slot| {
            let active_config = served.clone();
            service_fn(move |request| {
                let (router, peer, upgrade_slot) =
                    (active_config.router(number), Rc::clone(&peer), upgrade_slot.clone());
                async move { Ok::<_, Infallible>(router.dispatch(&peer, &upgrade_slot, request).await) }
            })
        },
    )
    .await
}
