//! The command line: presentation only. What a command does is done by the modules below.
//!
//! Exit codes: 0 done; 1 refused, failed, not found, not ready, or (`config status`) another configuration in force than
//! the file has; 2 wrong usage, such as a value that cannot be; 64 configuration errors; 69 the gateway cannot be reached;
//! 75 not now: the state is in use by a process that does not answer, or cannot be written.
//!
//! What was asked for goes to standard output, everything else to standard error.

use std::borrow::Cow;
use std::path::{Path, PathBuf};

use clap::{Parser, Subcommand};

use crate::config::Config;
use crate::key::redacted;

// Commands that run something.
mod demo;
mod serve;

// Commands that look at something.
mod check;
mod config;
mod health;
mod explain;
mod audit;

// Commands that change something.
mod org;
mod user;
mod key;
mod session;
mod state;

// What they share.
mod control;
mod client;
mod offline;
mod output;
mod show;
mod key_id;
mod error;

pub use error::{CliError, ExitStatus};

const EXIT_CODES: &str = "\
Exit codes:
   0  done
   1  refused, failed, not found, not ready, or not the configuration in the file
   2  wrong usage, such as a value that cannot be
  64  configuration errors; each is reported with its line and column
  69  the gateway cannot be reached
  75  not now: the state is in use by a process that does not answer, or it cannot be written; try again";

/// An API-key gateway: authenticates, limits, audits and forwards
#[derive(Debug, Parser)]
#[command(name = "keygate", version, after_help = EXIT_CODES, arg_required_else_help = true)]
pub struct Cli {
    /// The configuration file
    #[arg(long, global = true, value_name = "FILE", default_value = Config::DEFAULT_PATH)]
    config: PathBuf,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run everything on this machine, with a demo organization, its queries and its keys
    Demo(demo::Args),
    /// Run the gateway
    Serve,
    /// Report every error of the configuration
    Check,
    /// Tell which configuration the running gateway serves by
    Config(config::Args),
    /// Manage organizations
    Org(org::Args),
    /// Manage the users of an organization
    User(user::Args),
    /// Manage API keys
    Key(key::Args),
    /// Sign people in to the dashboard by a link, see who is signed in, and sign them out
    Session(session::Args),
    /// Move the state to where several gateways share it
    State(state::Args),
    /// Read the audit journal
    Audit(audit::Args),
    /// Tell why a key is refused: its state, its bucket, its last decisions
    Explain(explain::Args),
    /// Tell whether the gateway is ready; for containers
    Health,
}

impl Cli {
    /// The command line of this process. What is wrong with it is told, and ends the process.
    ///
    /// Secrets of keys that stand where none belongs are not repeated: errors end up in the logs of scripts.
    pub fn from_process_args() -> Self {
        Self::try_parse().unwrap_or_else(|error| {
            let told = error.render().to_string();
            match redacted(told.as_bytes()) {
                Cow::Borrowed(_) => error.exit(),
                Cow::Owned(safe) => {
                    output::note(String::from_utf8_lossy(&safe).trim_end());
                    std::process::exit(error.exit_code())
                }
            }
        })
    }

    /// Runs the command to its end.
    ///
    /// # Errors
    /// [`CliError`]: what to print, and the exit code.
    pub fn run(self) -> Result<(), CliError> {
        let config = || load(&self.config);
        match self.command {
            Command::Demo(args) => Ok(demo::run(args)?),
            Command::Serve => Ok(serve::run(config()?)?),
            Command::Check => check::run(&self.config),
            Command::Config(args) => args.run(&self.config),
            Command::Org(args) => args.run(&config()?),
            Command::User(args) => args.run(&config()?),
            Command::Key(args) => args.run(&config()?),
            Command::Session(args) => args.run(&config()?),
            Command::State(args) => args.run(&self.config, &config()?),
            Command::Audit(args) => args.run(&config()?),
            Command::Explain(args) => args.run(&config()?),
            Command::Health => health::run(&config()?),
        }
    }
}

fn load(path: &Path) -> Result<Config, CliError> {
    Config::load(path).map_err(|problems| CliError::new(ExitStatus::Configuration, problems))
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn the_command_line_is_sound() {
        Cli::command().debug_assert();
    }
}
