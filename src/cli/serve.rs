//! `keygate serve`: runs the gateway until it is told to stop.

use anyhow::Context as _;
use tokio::signal::unix::{SignalKind, signal};

use crate::app::App;
use crate::config::Config;
use crate::telemetry;

/// Runs the gateway. SIGTERM and SIGINT drain it: not ready at once, requests in flight end within the grace period.
///
/// # Errors
/// What could not be bound, opened or started, and why.
pub(super) fn run(config: Config) -> anyhow::Result<()> {
    telemetry::init(config.telemetry);
    let gateway = config.gateway.clone();
    let app = App::start(config)?;
    for address in &app.addresses {
        tracing::info!(%address, admin = %app.admin_address, gateway, "serving");
    }
    let signal = wait_for_signal()?;
    tracing::info!(signal, "draining");
    app.stop();
    tracing::info!("stopped");
    Ok(())
}

/// Waits for SIGTERM or SIGINT and says which it was.
pub(super) fn wait_for_signal() -> anyhow::Result<&'static str> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let mut terminate = signal(SignalKind::terminate()).context("cannot wait for SIGTERM")?;
        let mut interrupt = signal(SignalKind::interrupt()).context("cannot wait for SIGINT")?;
        Ok(tokio::select! {
            _ = terminate.recv() => "SIGTERM",
            _ = interrupt.recv() => "SIGINT",
        })
    })
}
