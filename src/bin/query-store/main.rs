//! The program query-store: command line, signals and exit codes for [`keygate::query_store`].
//!
//! Exit codes: 0 success, 1 failure, 2 invalid command line, 64 invalid settings.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context as _;
use clap::{CommandFactory as _, Parser, Subcommand};
use keygate::cli_docs::DocsCommand;
use keygate::identity::{OrgId, UserId};
use keygate::query_store::service::Caller;
use keygate::query_store::{self, Settings, StoreSettings};
use keygate::{clock, telemetry, transport};
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
                telemetry::init(settings.telemetry);
                run(command, &settings)
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
fn run(command: ServiceCommand, settings: &Settings) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build_local(tokio::runtime::LocalOptions::default())?;
    match command {
        ServiceCommand::Serve => runtime.block_on(serve(settings)),
        ServiceCommand::Seed { org, user, count } => {
            let service = query_store::open(settings)?;
            runtime.block_on(query_store::seed(&service, Caller { org, user }, count, clock::now()))?;
            let StoreSettings::Sqlite { path } = &settings.store;
            eprintln!("stored {count} queries of {org} in {}", path.display());
            Ok(())
        }
    }
}

async fn serve(settings: &Settings) -> anyhow::Result<()> {
    let signals = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?, signal(SignalKind::hangup())?);
    let service = query_store::open(settings)?;
    let listeners = transport::bind(settings.listen, 1);
    let listeners = listeners.with_context(|| format!("cannot listen on {}", settings.listen))?;
    let listener = listeners.into_iter().next().context("no listener was made")?;
    tracing::info!(address = %listener.local_addr()?, "serving");
    query_store::serve(listener, service, settings.drain, wait_for_stop(signals)).await?;
    tracing::info!("stopped");
    Ok(())
}

/// Waits for SIGTERM or SIGINT. SIGHUP is caught and logged, because by default it would end the process without a drain.
async fn wait_for_stop((mut terminate, mut interrupt, mut hangup): (Signal, Signal, Signal)) {
    loop {
        tokio::select! {
            _ = terminate.recv() => break,
            _ = interrupt.recv() => break,
            _ = hangup.recv() => {
                tracing::warn!("query-store does not reload its settings; restart it to apply them");
            }
        }
    }
    tracing::info!("draining");
}
