//! `keygate serve`: runs the gateway until a signal stops it.

use std::io::IsTerminal as _;

use anyhow::Context as _;
use tokio::signal::unix::{SignalKind, signal};

use crate::app::{App, ProcessHandles, ServiceNotifier, ShutdownHandle};
use crate::config::Config;
use crate::telemetry;

/// Runs the gateway.
///
/// - SIGHUP reloads the configuration.
/// - SIGTERM and SIGINT stop it: "not ready" at once, then the lame duck, then the drain within its grace period. A second
///   signal skips the lame duck; a third one ends the drain. SIGINT from a terminal skips the lame duck itself, because
///   a gateway that is run by hand has no load balancer in front of it.
///
/// # Errors
/// The listener, store, certificate or thread that could not be bound, opened or started, and the cause.
pub(super) fn run(config: Config) -> anyhow::Result<()> {
    let logs = telemetry::init(config.telemetry);
    let gateway = config.gateway.clone();
    config.warnings().iter().for_each(|warning| tracing::warn!("{warning}"));
    // Before the start, so that a signal during the start does not kill the process in the middle of a write.
    let mut signals = Signals::new()?;
    let mut app = App::start_with(ProcessHandles { logs, notifier: ServiceNotifier::from_environment() }, config)?;
    for address in &app.addresses {
        tracing::info!(%address, admin = %app.admin_address, gateway, "serving");
    }
    let mut signal = signals.wait();
    while signal == Signal::Hangup {
        tracing::info!("received SIGHUP: reloading the configuration");
        app.reload();
        signal = signals.wait();
    }
    tracing::info!(?signal, "draining");
    if signal == Signal::Interrupt && std::io::stdin().is_terminal() {
        app = app.without_lame_duck();
    }
    let shutdown = app.shutdown_handle();
    // Not joined: it waits for signals until the process ends.
    std::thread::Builder::new().name("signals".into()).spawn(move || expedite_on_signals(signals, &shutdown))?;
    app.stop();
    tracing::info!("stopped");
    Ok(())
}

/// Expedites the shutdown at each further signal to stop.
fn expedite_on_signals(mut signals: Signals, shutdown: &ShutdownHandle) {
    loop {
        match signals.wait() {
            Signal::Hangup => tracing::warn!("received SIGHUP while draining: the configuration is not reloaded"),
            signal => {
                tracing::info!(?signal, "expediting the shutdown");
                shutdown.expedite();
            }
        }
    }
}

/// A signal that the process handles.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Signal {
    Terminate,
    Interrupt,
    Hangup,
}

/// Receiver of SIGTERM, SIGINT and SIGHUP. Once it exists, these signals no longer end the process.
pub(super) struct Signals {
    runtime: tokio::runtime::Runtime,
    terminate: tokio::signal::unix::Signal,
    interrupt: tokio::signal::unix::Signal,
    hangup: tokio::signal::unix::Signal,
}

impl Signals {
    /// Installs the signal handlers.
    ///
    /// # Errors
    /// The operating system refuses a handler, or a runtime.
    pub(super) fn new() -> anyhow::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let entered = runtime.enter();
        let install = |kind, name| signal(kind).with_context(|| format!("cannot handle {name}"));
        let terminate = install(SignalKind::terminate(), "SIGTERM")?;
        let interrupt = install(SignalKind::interrupt(), "SIGINT")?;
        let hangup = install(SignalKind::hangup(), "SIGHUP")?;
        drop(entered);
        Ok(Self { runtime, terminate, interrupt, hangup })
    }

    /// Waits for the next signal.
    pub(super) fn wait(&mut self) -> Signal {
        self.runtime.block_on(async {
            tokio::select! {
                _ = self.terminate.recv() => Signal::Terminate,
                _ = self.interrupt.recv() => Signal::Interrupt,
                _ = self.hangup.recv() => Signal::Hangup,
            }
        })
    }
}
