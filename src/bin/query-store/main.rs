//! query-store, the program: command line, signals and exit codes around [`keygate::query_store`].
//!
//! Exit codes: 0 done, 1 failed, 2 wrong command line, 64 wrong settings.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context as _;
use clap::{Parser, Subcommand};
use keygate::identity::{OrgId, UserId};
use keygate::query_store::service::Caller;
use keygate::query_store::{self, Settings};
use keygate::{clock, telemetry, transport};
use tokio::signal::unix::{Signal, SignalKind, signal};

/// Wrong settings (`EX_USAGE` of sysexits).
const WRONG_SETTINGS: u8 = 64;

/// Stores queries and pages through them. Believes the identity headers it gets: only the gateway may reach it.
#[derive(Parser)]
#[command(version)]
struct Arguments {
    /// The settings file.
    #[arg(long, global = true, value_name = "FILE", default_value = Settings::DEFAULT_PATH)]
    config: PathBuf,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Runs the service until SIGTERM or SIGINT.
    Serve,
    /// Stores sample queries; a running service shows them at once.
    Seed {
        /// The organization that gets them.
        #[arg(long)]
        org: OrgId,
        /// The user who is named as their creator.
        #[arg(long)]
        user: UserId,
        /// How many; 250 of them are different.
        #[arg(long, default_value_t = 250)]
        count: u32,
    },
}

#[allow(clippy::print_stderr, reason = "errors of the command line go to standard error, not to the log")]
fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let settings = match Settings::load(&arguments.config) {
        Ok(settings) => settings,
        Err(problems) => {
            eprintln!("{problems}");
            return ExitCode::from(WRONG_SETTINGS);
        }
    };
    telemetry::init(settings.telemetry);
    match run(arguments.command, &settings) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("query-store: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(command: Command, settings: &Settings) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build_local(tokio::runtime::LocalOptions::default())?;
    match command {
        Command::Serve => runtime.block_on(serve(settings)),
        Command::Seed { org, user, count } => {
            let service = query_store::open(settings)?;
            Ok(runtime.block_on(query_store::seed(&service, Caller { org, user }, count, clock::now()))?)
        }
    }
}

async fn serve(settings: &Settings) -> anyhow::Result<()> {
    let (terminate, interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    let service = query_store::open(settings)?;
    let listeners = transport::bind(settings.listen, 1);
    let listeners = listeners.with_context(|| format!("cannot listen on {}", settings.listen))?;
    let listener = listeners.into_iter().next().context("no listener was made")?;
    tracing::info!(address = %listener.local_addr()?, "serving");
    query_store::serve(listener, service, settings.drain, stopped(terminate, interrupt)).await?;
    tracing::info!("stopped");
    Ok(())
}

async fn stopped(mut terminate: Signal, mut interrupt: Signal) {
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    tracing::info!("draining");
}
