//! `keygate serve`: runs the gateway until it is told to stop.

use std::io::IsTerminal as _;

use anyhow::Context as _;
use tokio::signal::unix::{SignalKind, signal};

use crate::app::{App, ProcessHandles, ServiceNotifier, ShutdownHandle};
use crate::config::Config;
use crate::telemetry;

/// Runs the gateway.
///
/// - SIGHUP reloads the configuration.
/// - SIGTERM and SIGINT drain: not ready at once, a lame duck for a while, then requests in flight end within the grace
///   period. A further one skips the lame duck; one after that ends what is in flight. A terminal's SIGINT skips the
///   lame duck by itself: whoever sits there wants no other gateway to take over.
///
/// # Errors
/// What could not be bound, opened or started, and why.
pub(super) fn run(config: Config) -> anyhow::Result<()> {
    let logs = telemetry::init(config.telemetry);
    let gateway = config.gateway.clone();
    let mut signals = Signals::new()?;
    let mut app = App::start_with(ProcessHandles { logs, notifier: ServiceNotifier::from_environment() }, config)?;
    for address in &app.addresses {
        tracing::info!(%address, admin = %app.admin_address, gateway, "serving");
    }
    let mut signal = signals.next();
    while signal == Signal::Hangup {
        tracing::info!("SIGHUP: reloading the configuration");
        app.reload();
        signal = signals.next();
    }
    tracing::info!(?signal, "draining");
    if signal == Signal::Interrupt && std::io::stdin().is_terminal() {
        app = app.without_lame_duck();
    }
    let shutdown = app.shutdown_handle();
    // Ends with the process.
    std::thread::Builder::new().name("signals".into()).spawn(move || hurry(signals, &shutdown))?;
    app.stop();
    tracing::info!("stopped");
    Ok(())
}

/// Passes on that somebody is in a hurry.
fn hurry(mut signals: Signals, shutdown: &ShutdownHandle) {
    loop {
        match signals.next() {
            Signal::Hangup => tracing::warn!("SIGHUP: draining, nothing is reloaded any more"),
            signal => {
                tracing::info!(?signal, "hastening the drain");
                shutdown.expedite();
            }
        }
    }
}

/// A signal that people, supervisors and terminals send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Signal {
    Terminate,
    Interrupt,
    Hangup,
}

/// The signals. From its making on, they no longer end the process.
pub(super) struct Signals {
    runtime: tokio::runtime::Runtime,
    terminate: tokio::signal::unix::Signal,
    interrupt: tokio::signal::unix::Signal,
    hangup: tokio::signal::unix::Signal,
}

impl Signals {
    /// Catches them.
    ///
    /// # Errors
    /// When the operating system refuses.
    pub(super) fn new() -> anyhow::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let entered = runtime.enter();
        let caught = |kind, name| signal(kind).with_context(|| format!("cannot wait for {name}"));
        let terminate = caught(SignalKind::terminate(), "SIGTERM")?;
        let interrupt = caught(SignalKind::interrupt(), "SIGINT")?;
        let hangup = caught(SignalKind::hangup(), "SIGHUP")?;
        drop(entered);
        Ok(Self { runtime, terminate, interrupt, hangup })
    }

    /// Waits for one of them and says which it was.
    pub(super) fn next(&mut self) -> Signal {
        self.runtime.block_on(async {
            tokio::select! {
                _ = self.terminate.recv() => Signal::Terminate,
                _ = self.interrupt.recv() => Signal::Interrupt,
                _ = self.hangup.recv() => Signal::Hangup,
            }
        })
    }
}
