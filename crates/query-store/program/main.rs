//! The program query-store: command line, signals and exit codes for [`query_store`].
//!
//! Exit codes: 0 success, 1 failure, 2 invalid command line, 64 invalid settings.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context as _;
use clap::{CommandFactory as _, Parser, Subcommand};
use domain::clock;
use domain::counted::Counted;
use domain::identity::{OrgId, UserId};
use edge::transport;
use platform::cli_docs::DocsCommand;
use platform::postgresql::Connector;
use platform::telemetry;
use query_store::service::Caller;
use query_store::{self, QueryService, Settings, StoreSettings};
use tokio::signal::unix::{Signal, SignalKind, signal};

/// Exit code for invalid settings (`EX_USAGE` of sysexits).
const INVALID_SETTINGS: u8 = 64;

/// Stores queries and lists them in pages. Trusts the identity headers of requests: only the gateway may reach it.
#[derive(Parser)]
#[command(name = "query-store", version)]
struct Arguments {
    /// The settings file.
    #[arg(long, global = true, value_name = "FILE", default_value = Settings::DEFAULT_PATH)]
    config: PathBuf,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    #[command(flatten)]
    Service(ServiceCommand),
    #[command(flatten)]
    Docs(DocsCommand),
}

/// Commands that need the settings.
#[derive(Subcommand)]
enum ServiceCommand {
    /// Runs the service until SIGTERM or SIGINT.
    Serve,
    /// Stores sample queries; a running service shows them at once.
    Seed {
        /// The organization that owns the queries.
        #[arg(long)]
        org: OrgId,
        /// The user recorded as their creator.
        #[arg(long)]
        user: UserId,
        /// Number of queries; 250 of them are different.
        #[arg(long, default_value_t = 250, value_parser = clap::value_parser!(u32).range(1..))]
        count: u32,
    },
}

#[allow(clippy::print_stderr, reason = "errors of the command line go to standard error, not to the log")]
fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let done = match arguments.command {
        Command::Docs(docs) => docs.run(Arguments::command()).context("cannot write the documentation"),
        Command::Service(command) => match Settings::load(&arguments.config) {
            Ok(settings) => {
                let logs = telemetry::init_queued(settings.telemetry);
                let done = run(command, &settings, &arguments.config);
                // Before the error is printed, of which the log tells the rest.
                logs.flush();
                done
            }
            Err(problems) => {
                eprintln!("{problems}");
                return ExitCode::from(INVALID_SETTINGS);
            }
        },
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("query-store: {error:#}");
            ExitCode::FAILURE
        }
    }
}

#[allow(clippy::print_stderr, reason = "what a command has done goes to standard error, as keygate's do")]
fn run(command: ServiceCommand, settings: &Settings, config: &Path) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build_local(tokio::runtime::LocalOptions::default())?;
    match command {
        ServiceCommand::Serve => runtime.block_on(serve(settings, config)),
        ServiceCommand::Seed { org, user, count } => {
            let service = query_store::open(settings)?;
            runtime.block_on(query_store::seed(&service, Caller { org, user }, count, clock::now()))?;
            eprintln!("stored {} of {org} in {}", Counted(count, "query"), settings.store);
            Ok(())
        }
    }
}

async fn serve(settings: &Settings, config: &Path) -> anyhow::Result<()> {
    let signals = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?, signal(SignalKind::hangup())?);
    let service = query_store::open(settings)?;
    prepare(&service).await?;
    let listeners = transport::bind(settings.listen, 1);
    let listeners = listeners.with_context(|| format!("cannot listen on {}", settings.listen))?;
    let listener = listeners.into_iter().next().context("no listener was made")?;
    tracing::info!(address = %listener.local_addr()?, "serving");
    let connector = service.store().connector();
    let stop = wait_for_stop(signals, || reload_password(config, connector.as_deref()));
    query_store::serve(listener, service, settings.drain, stop).await?;
    tracing::info!("stopped");
    Ok(())
}

/// Connects to a database and migrates its tables before the service listens. One that is away may come later: until
/// then requests are answered with 503. One that this program can never use ends the start.
async fn prepare(service: &QueryService) -> anyhow::Result<()> {
    match service.store().prepare().await {
        Err(error) if error.is_permanent() => Err(error).context("cannot use the store"),
        Err(error) => {
            let error = &error as &dyn std::error::Error;
            tracing::error!(error, "the store is not available; requests are answered with 503 until it is");
            Ok(())
        }
        Ok(()) => Ok(()),
    }
}

/// Takes the password of PostgreSQL from the settings file, for new connections.
fn reload_password(config: &Path, connector: Option<&Connector>) {
    let settings = match Settings::load(config) {
        Ok(settings) => settings,
        Err(problems) => {
            tracing::error!(%problems, "cannot reload the settings; the password of before stays in use");
            return;
        }
    };
    let is_replaced = match (connector, &settings.store) {
        (Some(connector), StoreSettings::Postgresql(store)) => connector.replace_password(&store.database),
        _ => false,
    };
    if is_replaced {
        tracing::info!("reloaded the password of PostgreSQL; other changed settings need a restart");
    } else {
        tracing::warn!("the password of PostgreSQL is the same; all other settings need a restart");
    }
}

/// Waits for SIGTERM or SIGINT. SIGHUP reloads.
async fn wait_for_stop((mut terminate, mut interrupt, mut hangup): (Signal, Signal, Signal), reload: impl Fn()) {
    loop {
        tokio::select! {
            _ = terminate.recv() => break,
            _ = interrupt.recv() => break,
            _ = hangup.recv() => reload(),
        }
    }
    tracing::info!("draining");
}
