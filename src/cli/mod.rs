//! Command line: parses arguments and presents results; the modules below do the work.
//!
//! Exit codes: 0 success; 1 refused, failed, not found, not ready, (`config status`) the file differs from the active
//! configuration, (`doctor`) there is a warning or an error, or (`demo --fleet`) a number is not as promised; 2 usage
//! error, such as an invalid value; 3 (`apply --dry-run`) there is something to change, or (`replay`) a request would
//! be decided otherwise; 4 (`convert`) something has no counterpart and was left out, or (`state import`) records are
//! in conflict; 64 configuration errors; 69 the gateway cannot be reached, or (`demo --fleet`) Redis is not installed;
//! 75 temporary failure: the state is in use by a process that does not respond, or cannot be written, or (`demo
//! --fleet`) the run failed or was interrupted.
//!
//! Results go to standard output, everything else to standard error.

use std::borrow::Cow;
use std::path::PathBuf;

use clap::error::{ContextKind, ContextValue};
use clap::{CommandFactory as _, Parser, Subcommand};

use domain::key::redact;
use installation::Installation;
use platform::cli_docs::DocsCommand;
use remote::RemoteArgs;
use show::Format;

// Commands that run a gateway.
mod demo;
mod init;
mod serve;
mod upgrade;

// Commands that only read.
mod check;
mod service_user;
mod config;
mod health;
mod explain;
mod replay;
mod usage;
mod upstreams;
mod doctor;
mod audit;
mod audit_filter;
mod audit_proofs;
mod checkpoint_file;
mod check_proof;
mod convert;
mod audit_ship;
mod events;

// Commands that make changes.
mod org;
mod user;
mod key;
mod key_generate;
mod key_policy;
mod plan_flags;
mod quota;
mod session;
mod token;
mod federation;
mod state;
mod backup;
mod apply;

// Shared by the commands.
mod installation;
mod control;
mod call;
mod calls;
mod answer;
mod client;
mod remote;
mod offline;
mod output;
mod secret_output;
mod progress;
mod table;
mod show;
mod list;
mod key_record;
mod key_target;
mod error;

pub use error::{CliError, ExitStatus};

/// Heading of the options that say which gateway a command is about.
const CONNECTION: &str = "Which gateway";

const EXIT_CODES: &str = "\
Exit codes:
   0  success
   1  refused, failed, not found, not ready, the file differs from the active configuration, `doctor` found a problem,
      or a number of `demo --fleet` is not as promised
   2  usage error, such as an invalid value
   3  `apply --dry-run`: there is something to change; `replay`: a request would be decided otherwise
   4  `convert`: something has no counterpart and was left out; all else was converted. `state import`: records are in
      conflict; all else was imported
  64  configuration errors; each is reported with its line and column
  65  `serve`: the state was lost, or is another one or an older one than this gateway has served
  69  the gateway cannot be reached, or `demo --fleet` finds no redis-server
  75  temporary failure: the state is in use by a process that does not respond, or cannot be written, or `demo --fleet`
      failed or was interrupted; try again";

/// An API-key gateway: authenticates, limits, audits and forwards
#[derive(Debug, Parser)]
#[command(name = "keygate", version, after_help = EXIT_CODES, arg_required_else_help = true)]
pub struct Cli {
    /// Configuration file [default: $KEYGATE_CONFIG, keygate/keygate.yaml, config/keygate.yaml or
    /// /etc/keygate/keygate.yaml]
    #[arg(long, global = true, value_name = "FILE", help_heading = CONNECTION)]
    config: Option<PathBuf>,
    /// Admin socket of the running gateway [default: `admin.socket` of the file, which may have errors elsewhere]
    #[arg(long, global = true, value_name = "PATH", help_heading = CONNECTION)]
    socket: Option<PathBuf>,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run the gateway and query-store on this machine, with a demo organization, queries and keys
    Demo(demo::Args),
    /// Write a first configuration in front of a server of yours, with an organization and a user
    ///
    /// On a terminal, asks for what is missing. Never overwrites a file. Prints the next commands.
    Init(init::Args),
    /// Run the gateway
    Serve(serve::Args),
    /// Replace the running gateway by a new process, without a refused connection or a failed request
    ///
    /// The new process takes the listening sockets, the state and the journal over; requests in flight end at the old
    /// one. When anything fails, the old one goes on as before.
    Upgrade(upgrade::Args),
    /// Check the configuration file, and that the gateway can open what it names; report all errors
    ///
    /// Reads the file, and the secrets, keys and certificates that it names. Of the directories of the journal, the
    /// state and the admin socket, and of the file of the access log, it looks at the permissions only. It creates,
    /// changes and locks nothing, opens no socket, looks up no name and asks no server; but with --state it asks the
    /// running gateway, or reads the state.
    Check(check::Args),
    /// Show the configuration that the running gateway uses
    Config(config::Args),
    /// Manage organizations
    Org(RemoteCommand<org::Command>),
    /// Manage the users of an organization
    User(RemoteCommand<user::Command>),
    /// Manage API keys
    Key(RemoteCommand<key::Command>),
    /// Set, show and correct the quotas of organizations, users and keys: units of a day or a month
    Quota(RemoteCommand<quota::Command>),
    /// Create, list and revoke the tokens by which programs manage organizations, users and keys over the network
    Token(RemoteCommand<token::Command>),
    /// Create sign-in links for the dashboard, list sessions, and end them
    Session(session::Args),
    /// Manage federation rules, which exchange tokens of a CI for keys, so that the CI holds no secret
    Federation(RemoteCommand<federation::Command>),
    /// Export and import the state, or copy it to a Redis that several gateways share
    State(RemoteCommand<state::Command>),
    /// Create, change, revoke and remove organizations, users, permissions, keys and limits from a file
    ///
    /// Shows a plan first: + creates, ~ changes, - revokes or removes, ! conflicts. Records that the file does
    /// not name stay as they are. A revoked key and a removed user never come back. Applying the same file
    /// twice changes nothing.
    Apply(apply::Args),
    /// Convert consumers and keys of another gateway into a file for `apply`, or an OpenAPI document into routes
    ///
    /// Reads the file, hashes its keys, and prints the document with their digests, never a key. An error in the file
    /// is reported with its place, and nothing is printed. What has no counterpart is listed on standard error, and the
    /// exit code is 4.
    Convert(convert::Args),
    /// Read the audit journal
    Audit(RemoteCommand<audit::Command>),
    /// Events for people: records that a sink of the audit gets
    Events(events::Args),
    /// Add up usage by organization, key or route, day by day or month by month
    ///
    /// From the records of the audit journal: admitted requests by outcome, refusals by their exact number, requests
    /// that have not ended. Where retention has removed some of the range, it says from which time on the journal has
    /// all records.
    Usage(usage::Args),
    /// Explain why a key is refused: its state, its bucket and its last decisions
    ///
    /// The id of a request, as request_id of a refusal, stands for the key of that request. Refusals in a loop are
    /// folded into one record: the records that cover the time of the id are shown then.
    Explain(explain::Args),
    /// Decide the requests of the audit again by another configuration, and show what it would change
    ///
    /// Give the new file as --config. The limits, plans and routes are those of the file; organizations, users, keys
    /// and their policies are those of the state. Requests are decided in virtual time by the steps of the gateway;
    /// nothing is changed. Exit code 3 when a request would be decided otherwise.
    Replay(replay::Args),
    /// Show the endpoints of the upstreams: state, ejections, checks, load and latency
    ///
    /// As the running gateway sees them; exit code 69 when no gateway runs.
    Upstreams(upstreams::Args),
    /// Check whether the gateway is ready; for container health checks
    Health,
    /// Diagnose the running gateway and its environment, and recommend changes
    ///
    /// Looks at limits of the process, the clock, disks, Redis, certificates, the upstreams, routes, listeners and file
    /// permissions. Exit code 0 when no finding is worse than a note, else 1.
    Doctor(doctor::Args),
    #[command(flatten)]
    Docs(DocsCommand),
}

/// A command with commands of its own, by which it also works on another machine.
#[derive(Debug, clap::Args)]
struct RemoteCommand<C: Subcommand> {
    #[command(subcommand)]
    command: C,
    #[command(flatten)]
    format: Format,
    #[command(flatten)]
    remote: RemoteArgs,
}

impl Cli {
    /// Parses the arguments of this process. An error is printed and ends the process, as do `--help` and `--version`.
    ///
    /// Errors do not repeat the secret of an API key that was given in the wrong place: they end up in the logs of
    /// scripts.
    pub fn from_process_args() -> Self {
        Self::try_parse().unwrap_or_else(|mut error| {
            suggest_group(&mut error);
            let message = error.render().to_string();
            match redact(message.as_bytes()) {
                Cow::Borrowed(_) => error.exit(),
                Cow::Owned(safe) => {
                    output::note_lines(String::from_utf8_lossy(&safe).trim_end());
                    std::process::exit(error.exit_code())
                }
            }
        })
    }

    /// Runs the command.
    ///
    /// # Errors
    /// [`CliError`]: the message, and the exit code.
    pub fn run(self) -> Result<(), CliError> {
        let is_file_named = self.config.is_some();
        let installation = Installation::new(self.config, self.socket).with_remote(self.command.remote())?;
        let installation = &installation;
        match self.command {
            Command::Demo(args) => demo::run(args),
            Command::Init(args) => args.run(is_file_named),
            Command::Serve(args) => serve::run(&args, installation.config()?).map_err(serve::failed),
            Command::Upgrade(args) => args.run(installation),
            Command::Check(args) => args.run(installation),
            Command::Config(args) => args.run(installation),
            Command::Org(args) => args.run(installation),
            Command::User(args) => args.run(installation),
            Command::Federation(args) => args.run(installation),
            Command::Apply(args) => args.run(installation),
            Command::Convert(args) => args.run(),
            Command::Key(args) => args.run(installation),
            Command::Quota(args) => args.run(installation),
            Command::Session(args) => args.run(installation),
            Command::Token(args) => args.run(installation),
            Command::State(args) => args.run(installation),
            Command::Audit(args) => args.run(installation),
            Command::Events(args) => args.run(installation),
            Command::Usage(args) => args.run(installation),
            Command::Explain(args) => args.run(installation),
            Command::Replay(args) => args.run(installation),
            Command::Upstreams(args) => args.run(installation),
            Command::Health => health::run(installation),
            Command::Doctor(args) => args.run(installation.file()),
            Command::Docs(docs) => Ok(docs.run(Self::command())?),
        }
    }
}

/// Has the error of `keygate revoke` name the commands that it may stand for: `keygate key revoke` and others.
fn suggest_group(error: &mut clap::Error) {
    let Some(ContextValue::String(given)) = error.get(ContextKind::InvalidSubcommand) else { return };
    let cli = Cli::command();
    let groups = cli.get_subcommands().filter(|group| group.find_subcommand(given).is_some());
    let named: Vec<String> = groups.map(|group| format!("{} {given}", group.get_name())).collect();
    if !named.is_empty() {
        error.insert(ContextKind::SuggestedSubcommand, ContextValue::Strings(named));
    }
}

impl Command {
    /// The options that name a gateway elsewhere, of a command that has them.
    fn remote(&self) -> Option<&RemoteArgs> {
        Some(match self {
            Self::Org(args) => &args.remote,
            Self::User(args) => &args.remote,
            Self::Key(args) => &args.remote,
            Self::Quota(args) => &args.remote,
            Self::Token(args) => &args.remote,
            Self::Federation(args) => &args.remote,
            Self::State(args) => &args.remote,
            Self::Apply(args) => &args.remote,
            Self::Audit(args) => &args.remote,
            Self::Usage(args) => &args.remote,
            Self::Explain(args) => &args.remote,
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn command_definitions_are_valid() {
        Cli::command().debug_assert();
    }
}
