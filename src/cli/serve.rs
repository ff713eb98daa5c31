//! `keygate serve`: runs the gateway until it is told to stop.

use anyhow::Context as _;
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::app::App;
use crate::config::Config;
use crate::telemetry;

/// Runs the gateway. SIGTERM and SIGINT drain it: not ready at once, requests in flight end within the grace period.
/// SIGHUP is only told: it would end the process as it stands.
///
/// # Errors
/// What could not be bound, opened or started, and why.
pub(super) fn run(config: Config) -> anyhow::Result<()> {
    telemetry::init(config.telemetry);
    let gateway = config.gateway.clone();
    let mut signals = Signals::new()?;
    let app = App::start(config)?;
    for address in &app.addresses {
        tracing::info!(%address, admin = %app.admin_address, gateway, "serving");
    }
    let mut signal = signals.next();
    while signal == HANGUP {
        tracing::warn!(signal, "reload is not supported by this version; restart to apply a configuration");
        signal = signals.next();
    }
    tracing::info!(signal, "draining");
    app.stop();
    tracing::info!("stopped");
    Ok(())
}

/// What a terminal sends when it is closed, and an operator who hopes for a reload.
const HANGUP: &str = "SIGHUP";

/// The signals that people send. From its making on, they no longer end the process.
pub(super) struct Signals {
    runtime: tokio::runtime::Runtime,
    terminate: Signal,
    interrupt: Signal,
    hangup: Signal,
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
        let hangup = caught(SignalKind::hangup(), HANGUP)?;
        drop(entered);
        Ok(Self { runtime, terminate, interrupt, hangup })
    }

    /// Waits for one of them and says which it was.
    pub(super) fn next(&mut self) -> &'static str {
        self.runtime.block_on(async {
            tokio::select! {
                _ = self.terminate.recv() => "SIGTERM",
                _ = self.interrupt.recv() => "SIGINT",
                _ = self.hangup.recv() => HANGUP,
            }
        })
    }
}
