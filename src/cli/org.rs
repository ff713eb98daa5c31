//! `keygate org`: manages organizations.

use clap::Subcommand;

use super::installation::Installation;
use super::show::Format;
use super::{CliError, list};
use ::control::admin::Operation;

/// Arguments of `keygate org`.
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
        /// Name; must be unique
        name: String,
    },
    /// List all organizations
    List,
    /// Show an organization
    Show {
        /// Id or name of the organization
        org: String,
    },
    /// Refuse all requests of an organization from now on, until it is resumed
    Suspend {
        /// Id or name of the organization
        org: String,
    },
    /// Admit requests of a suspended organization again
    Resume {
        /// Id or name of the organization
        org: String,
    },
    /// Set the limits of an organization; without options, show them
    Limits {
        /// Id or name of the organization
        org: String,
        /// Maximum number of requests in flight
        #[arg(long, value_name = "N")]
        concurrent: Option<u32>,
        /// Use the configured limits again
        #[arg(long, conflicts_with = "concurrent")]
        default: bool,
    },
}

impl Args {
    pub(super) fn run(self, installation: &Installation) -> Result<(), CliError> {
        list::print(installation, operation(self.command), self.format)
    }
}

fn operation(command: Command) -> Operation {
    match command {
        Command::Create { name } => Operation::CreateOrg { name },
        Command::List => Operation::list_orgs(),
        Command::Show { org } => Operation::ShowOrg { org },
        Command::Suspend { org } => Operation::SuspendOrg { org },
        Command::Resume { org } => Operation::ResumeOrg { org },
        Command::Limits { org, concurrent: None, default: false } => Operation::ShowOrg { org },
        Command::Limits { org, concurrent, .. } => Operation::LimitOrg { org, concurrent },
    }
}
