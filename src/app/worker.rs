//! Worker: a thread with its own runtime, listeners and upstream connections.
//!
//! - A request is served by the configuration that is active when it arrives, to its end.
//! - The runtime drops whatever is still in flight when the worker ends, which closes the audit entries and gives back
//!   the slots.

use std::convert::Infallible;
use std::rc::Rc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::Context as _;
use futures_util::FutureExt as _;
use hyper::service::service_fn;
use prometheus::Histogram;
use tokio::runtime::{Builder, LocalOptions, LocalRuntime};
use tokio::sync::{mpsc as commands, watch};
use tokio::task::{self, spawn_local};
use tokio::time::{Instant, sleep_until};

use super::active_config::ActiveConfig;
use super::config_snapshot::ConfigSnapshot;
use super::shared_handles::SharedHandles;
use super::shutdown::{Phase, ShutdownEvent, wait_for_phase};
use super::worker_pool::WorkerCommand;
use crate::gateway::Connection;
use edge::transport::{self, WorkerListener};
use state::State;

/// Tasks that run at most before the event loop looks for new events: as many as one look can bring events, so that a
/// loop under load runs all that is ready, and then waits. Looking more often finds fewer events each time, costs a
/// system call, and, between two waits, tells nothing about which connections are silent (`upstream::idle`).
const EVENT_INTERVAL: u32 = 1024;
/// Time between two looks at the delay of the event loop.
const DELAY_INTERVAL: Duration = Duration::from_secs(1);

/// A worker that is to be started.
pub(super) struct Worker {
    /// Its own listeners, in the order of the configuration.
    pub(super) listeners: Vec<WorkerListener>,
    pub(super) snapshot: ConfigSnapshot,
    pub(super) commands: commands::Receiver<WorkerCommand>,
    pub(super) handles: SharedHandles,
    pub(super) phase: watch::Receiver<Phase>,
    /// Number of workers that run.
    pub(super) live_workers: Arc<AtomicUsize>,
    /// Receives [`ShutdownEvent::WorkerEnded`] when this worker ends.
    pub(super) ended: mpsc::Sender<ShutdownEvent>,
}

/// Guard that counts a running worker, and reports its end also after a panic.
struct LiveWorker {
    count: Arc<AtomicUsize>,
    ended: mpsc::Sender<ShutdownEvent>,
}

impl LiveWorker {
    fn new(worker: &Worker) -> Self {
        worker.live_workers.fetch_add(1, Ordering::Relaxed);
        Self { count: Arc::clone(&worker.live_workers), ended: worker.ended.clone() }
    }
}

impl Drop for LiveWorker {
    fn drop(&mut self) {
        self.count.fetch_sub(1, Ordering::Relaxed);
        // Sending fails only when the gateway no longer waits for its workers.
        self.ended.send(ShutdownEvent::WorkerEnded).ok();
    }
}

impl Worker {
    /// Starts the thread, and returns when it has its runtime.
    ///
    /// A local runtime runs its tasks where they are spawned: nothing of a request is shared, locked or sent, and a
    /// task that wakes another costs no system call.
    pub(super) fn start(self, number: usize) -> anyhow::Result<JoinHandle<()>> {
        let (started, has_started) = mpsc::sync_channel(1);
        let thread = std::thread::Builder::new().name(format!("worker-{number}"));
        let thread = thread.spawn(move || {
            let (runtime, result) =
                build_runtime().map_or_else(|error| (None, Err(error)), |runtime| (Some(runtime), Ok(())));
            // `start` waits for this message, so the receiver exists.
            started.send(result).ok();
            if let Some(runtime) = runtime {
                self.run(number, runtime);
            }
        })?;
        has_started
            .recv()
            .context("a worker thread ended while it started")?
            .context("cannot create the runtime of a worker")?;
        Ok(thread)
    }

    fn run(self, number: usize, runtime: LocalRuntime) {
        let _live = LiveWorker::new(&self);
        let phase = self.phase.clone();
        runtime.block_on(self.serve(number));
        if *phase.borrow() == Phase::Serving {
            tracing::error!("a worker ended although no shutdown was requested; the gateway is not ready: restart it");
        }
        // Does not wait for threads that resolve host names: a look-up can take longer than the shutdown may.
        runtime.shutdown_background();
    }

    /// Serves all listeners until they have drained, or the gateway ends.
    async fn serve(self, number: usize) {
        let delays = self.handles.metrics.worker_delay(number);
        let handles = SharedHandles { state: State::for_thread(&self.handles.state).await, ..self.handles };
        let state = Arc::clone(&handles.state);
        let active_config = ActiveConfig::new(handles, &self.snapshot);
        let open_exchanges = active_config.open_exchanges();
        spawn_local(run_commands(self.commands, active_config.clone()));
        spawn_local(observe_delay(delays));
        let start =
            |(index, listener)| spawn_local(serve_listener(listener, index, self.phase.clone(), active_config.clone()));
        let listeners: Vec<_> = self.listeners.into_iter().enumerate().map(start).collect();
        tokio::select! {
            () = join_listeners(listeners) => {}
            // Never completes. Here, and not in a task of its own, so that a panic of it ends the worker.
            () = open_exchanges.end_revoked(&state) => {}
            () = wait_for_phase(self.phase.clone(), Phase::Ending) => {}
        }
    }
}

fn build_runtime() -> std::io::Result<LocalRuntime> {
    Builder::new_current_thread().enable_all().event_interval(EVENT_INTERVAL).build_local(LocalOptions::default())
}

/// Runs commands of the control channel until the gateway closes it.
async fn run_commands(mut commands: commands::Receiver<WorkerCommand>, active_config: ActiveConfig) {
    while let Some(command) = commands.recv().await {
        let ack = match command {
            WorkerCommand::ApplyConfig(snapshot, ack) => {
                active_config.apply(&snapshot);
                ack
            }
            WorkerCommand::Ping(ack) => ack,
        };
        // Sending fails when the broadcast has timed out; the command was run all the same.
        ack.send(()).ok();
    }
}

async fn join_listeners(listeners: Vec<task::JoinHandle<std::io::Result<()>>>) {
    for listener in listeners {
        match listener.await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::error!(%error, "a listener failed and accepts no more connections"),
            Err(error) => tracing::error!(%error, "a listener panicked and accepts no more connections"),
        }
    }
}

async fn serve_listener(
    listener: WorkerListener,
    index: usize,
    phase: watch::Receiver<Phase>,
    active_config: ActiveConfig,
) -> std::io::Result<()> {
    let lame_duck = wait_for_phase(phase.clone(), Phase::LameDuck);
    let draining = wait_for_phase(phase, Phase::Draining);
    let routing = active_config.clone();
    transport::serve(
        listener,
        move || active_config.serving(index),
        lame_duck,
        draining,
        move |peer, handle| {
            let active_config = routing.clone();
            let connection = Rc::new(Connection::new(peer, handle, active_config.problem_types()));
            service_fn(move |request| {
                // Taken for each request and not for each connection, so that a reload also reaches connections that
                // stay open.
                active_config.router(index).dispatch(&connection, request).map(Ok::<_, Infallible>)
            })
        },
    )
    .await
}

/// Observes the delay of the event loop that runs this future: how late a timer fires. A loop is late when one task
/// runs for long, or when the worker does not get its core; every request of the worker waits for as long.
async fn observe_delay(delays: Histogram) -> Infallible {
    loop {
        let due = Instant::now() + DELAY_INTERVAL;
        sleep_until(due).await;
        delays.observe(due.elapsed().as_secs_f64());
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use tokio::net::UnixStream;
    use tokio::runtime::Handle;

    use super::*;

    /// By this count the pools know which of their connections are silent.
    #[test]
    fn event_loop_counts_the_wait_that_brings_an_event_although_many_tasks_are_ready() {
        build_runtime().unwrap().block_on(async {
            let waits = || Handle::current().metrics().worker_park_count(0);
            let (reader, mut writer) = std::os::unix::net::UnixStream::pair().unwrap();
            reader.set_nonblocking(true).unwrap();
            let reader = UnixStream::from_std(reader).unwrap();
            writer.write_all(b"x").unwrap();
            for _ in 0..EVENT_INTERVAL / 2 {
                spawn_local(async {});
            }
            let before = waits();
            reader.readable().await.unwrap();
            assert!(waits() > before);
        });
    }
}
