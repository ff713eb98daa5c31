//! `keygate serve`: runs the gateway until a signal stops it.

use std::io::IsTerminal as _;

use anyhow::Context as _;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::signal::unix::{SignalKind, signal};

use super::{CliError, ExitStatus};
use crate::app::{App, ProcessHandles, ServiceNotifier, ShutdownHandle, Succession};
use crate::config::Config;
use crate::doctor::{self, Check};
use platform::telemetry::{self, LogHandle};
use state::Discontinuity;

/// Options of the command.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Take over from the running gateway; `keygate upgrade` starts a gateway in this way
    #[arg(long, hide = true)]
    replace: bool,
}

/// Runs the gateway.
///
/// - SIGUSR2 starts the program that is now at the path from which this one was started, and lets it take over.
/// - When another process has taken over, this one drains as after SIGTERM.
/// - SIGHUP reloads the configuration.
/// - Other signals that can be caught end it at once, with a line in the log.
/// - SIGTERM and SIGINT stop it: "not ready" at once, then the lame duck, then the drain within its grace period. A
///   second signal skips the lame duck; a third one ends the drain. SIGINT from a terminal skips the lame duck itself,
///   because a gateway that is run by hand has no load balancer in front of it.
///
/// # Errors
/// The listener, store, certificate or thread that could not be bound, opened or started, and the cause.
pub(super) fn run(args: &Args, config: Config) -> anyhow::Result<()> {
    let logs = telemetry::init_queued(config.telemetry);
    let served = serve(args, config, logs.clone());
    // Before the error is printed, of which the log tells the rest.
    logs.flush();
    served
}

/// The error of a gateway that did not start, with its exit code.
pub(super) fn failed(error: anyhow::Error) -> CliError {
    if error.downcast_ref::<Discontinuity>().is_some() {
        return CliError::new(ExitStatus::StateLost, error);
    }
    error.into()
}

fn serve(args: &Args, config: Config, logs: LogHandle) -> anyhow::Result<()> {
    telemetry::log_fatal_signals(&logs).context("cannot handle signals")?;
    let gateway = config.gateway.clone();
    raise_open_files();
    config.warnings().iter().for_each(|warning| tracing::warn!("{warning}"));
    // Before the start, so that a signal during the start does not kill the process in the middle of a write.
    let mut signals = Signals::new()?;
    // Before another file is put in its place. Unknown without /proc, as in an empty root; only SIGUSR2 needs it.
    let binary = std::env::current_exe();
    let succession = if args.replace { Succession::Replace } else { Succession::FromDraining };
    let process = ProcessHandles { logs, notifier: ServiceNotifier::from_environment(), succession };
    let of_start = config.clone();
    let mut app = App::start_with(process, config)?;
    for address in &app.addresses {
        tracing::info!(%address, admin = %app.admin_address, gateway, "serving");
    }
    // Not joined, and not waited for: a file system may hang.
    std::thread::Builder::new().name("diagnosis".into()).spawn(move || log_warnings(&of_start))?;
    let mut handed_over = app.handed_over();
    let signal = loop {
        match signals.wait_or(async { handed_over.wait_for(|handed_over| *handed_over).await.is_ok() }) {
            Some(Signal::Hangup) => {
                tracing::info!("received SIGHUP: reloading the configuration");
                app.reload();
            }
            Some(Signal::User2) => match &binary {
                Ok(binary) => {
                    tracing::info!(binary = %binary.display(), "received SIGUSR2: starting a new process");
                    app.upgrade(binary);
                }
                Err(error) => tracing::error!(
                    %error, "received SIGUSR2, but the path of this program is unknown: use `keygate upgrade --binary \
                             PATH`"
                ),
            },
            signal => break signal,
        }
    };
    tracing::info!(?signal, "draining");
    if signal == Some(Signal::Interrupt) && std::io::stdin().is_terminal() {
        app = app.without_lame_duck();
    }
    let shutdown = app.shutdown_handle();
    // Not joined: it waits for signals until the process ends.
    std::thread::Builder::new().name("signals".into()).spawn(move || expedite_on_signals(signals, &shutdown))?;
    app.stop();
    tracing::info!("stopped");
    Ok(())
}

/// Raises the soft limit of open files to the hard one: shells and container runtimes leave it at 1024, for programs
/// that know no larger numbers of files.
fn raise_open_files() {
    let limit = getrlimit(Resource::Nofile);
    if limit.current == limit.maximum {
        return;
    }
    match setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit }) {
        Ok(()) => tracing::debug!(from = limit.current, to = limit.maximum, "raised the limit of open files"),
        Err(error) => tracing::warn!(%error, limit = limit.current, "cannot raise the limit of open files"),
    }
}

/// Logs once what `keygate doctor` would find to be wrong in this process and its files.
fn log_warnings(config: &Config) {
    match doctor::warnings(config, &Check::OF_START, true) {
        Ok(warnings) => warnings.iter().for_each(|warning| tracing::warn!("{warning}")),
        Err(error) => tracing::warn!(%error, "cannot look for what is wrong; run `keygate doctor`"),
    }
}

/// Expedites the shutdown at each further signal to stop.
fn expedite_on_signals(mut signals: Signals, shutdown: &ShutdownHandle) {
    loop {
        match signals.wait() {
            Signal::Hangup => tracing::warn!("received SIGHUP while draining: the configuration is not reloaded"),
            Signal::User2 => tracing::warn!("received SIGUSR2 while draining: no new process is started"),
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
    User2,
}

/// Receiver of SIGTERM, SIGINT, SIGHUP and SIGUSR2. Once it exists, these signals no longer end the process.
pub(super) struct Signals {
    runtime: tokio::runtime::Runtime,
    terminate: tokio::signal::unix::Signal,
    interrupt: tokio::signal::unix::Signal,
    hangup: tokio::signal::unix::Signal,
    user2: tokio::signal::unix::Signal,
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
        let user2 = install(SignalKind::user_defined2(), "SIGUSR2")?;
        drop(entered);
        Ok(Self { runtime, terminate, interrupt, hangup, user2 })
    }

    /// Waits for the next signal.
    pub(super) fn wait(&mut self) -> Signal {
        loop {
            if let Some(signal) = self.wait_or(std::future::pending::<bool>()) {
                return signal;
            }
        }
    }

    /// Waits for the next signal, or an event; none for the event.
    pub(super) fn wait_or(&mut self, event: impl Future<Output = bool>) -> Option<Signal> {
        self.runtime.block_on(async {
            tokio::select! {
                _ = self.terminate.recv() => Some(Signal::Terminate),
                _ = self.interrupt.recv() => Some(Signal::Interrupt),
                _ = self.hangup.recv() => Some(Signal::Hangup),
                _ = self.user2.recv() => Some(Signal::User2),
                _ = event => None,
            }
        })
    }
}
