//! `keygate org`: organizations.

use clap::Subcommand;

use super::show::{self, Format};
use super::{CliError, control};
use crate::admin::Operation;
use crate::config::Config;

/// What can be done with organizations.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(subcommand)]
    command: Command,
    #[command(flatten)]
    format: Format,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Create an organization
    Create {
        /// Its name, which no other has
        name: String,
    },
    /// List all organizations
    List,
    /// Show an organization
    Show {
        /// Its id or name
        org: String,
    },
    /// Refuse all requests of an organization, from the next one on
    Suspend {
        /// Its id or name
        org: String,
    },
    /// Admit its requests again
    Resume {
        /// Its id or name
        org: String,
    },
    /// Set an organization's limits; without options, show them
    Limits {
        /// Its id or name
        org: String,
        /// Requests it may have in flight
        #[arg(long, value_name = "N")]
        concurrent: Option<u32>,
        /// Go back to the configured limits
        #[arg(long, conflicts_with = "concurrent")]
        default: bool,
    },
}

impl Args {
    pub(super) fn run(self, config: &Config) -> Result<(), CliError> {
        let reply = control::perform(config, &operation(self.command))?;
        Ok(show::reply(reply, self.format)?)
    }
}

fn operation(command: Command) -> Operation {
    match command {
        Command::Create { name } => Operation::CreateOrg { name },
        Command::List => Operation::ListOrgs {},
        Command::Show { org } => Operation::ShowOrg { org },
        Command::Suspend { org } => Operation::SuspendOrg { org },
        Command::Resume { org } => Operation::ResumeOrg { org },
        Command::Limits { org, concurrent: None, default: false } => Operation::ShowOrg { org },
        Command::Limits { org, concurrent, .. } => Operation::LimitOrg { org, concurrent },
    }
}
