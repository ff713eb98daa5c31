//! `keygate user`: the users of an organization.

use clap::Subcommand;

use super::show::{self, Format};
use super::{CliError, control};
use crate::admin::Operation;
use crate::config::Config;
use crate::identity::Permission;

/// What can be done with users.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(subcommand)]
    command: Command,
    #[command(flatten)]
    format: Format,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Create a user
    Create {
        #[command(flatten)]
        org: InOrg,
        /// The email address, which no other user of the organization has
        email: String,
        #[command(flatten)]
        permissions: Permissions,
    },
    /// List all users, removed ones too
    List {
        #[command(flatten)]
        org: InOrg,
    },
    /// Replace all that a user may do; holds for its keys from the next request on
    Permit {
        #[command(flatten)]
        org: InOrg,
        /// The user's id or email address
        user: String,
        #[command(flatten)]
        permissions: Permissions,
    },
    /// Remove a user and refuse its keys, for good
    Remove {
        #[command(flatten)]
        org: InOrg,
        /// The user's id or email address
        user: String,
    },
}

#[derive(Debug, clap::Args)]
struct InOrg {
    /// The organization's id or name
    #[arg(long, value_name = "ORG")]
    org: String,
}

#[derive(Debug, clap::Args)]
struct Permissions {
    /// Something the user may do, such as queries:read; may be repeated
    #[arg(long = "permission", value_name = "PERMISSION")]
    permissions: Vec<Permission>,
}

impl Args {
    pub(super) fn run(self, config: &Config) -> Result<(), CliError> {
        let reply = control::perform(config, &operation(self.command))?;
        Ok(show::reply(reply, self.format)?)
    }
}

fn operation(command: Command) -> Operation {
    match command {
        Command::Create { org: InOrg { org }, email, permissions: Permissions { permissions } } => {
            Operation::CreateUser { org, email, permissions }
        }
        Command::List { org: InOrg { org } } => Operation::ListUsers { org },
        Command::Permit { org: InOrg { org }, user, permissions: Permissions { permissions } } => {
            Operation::PermitUser { org, user, permissions }
        }
        Command::Remove { org: InOrg { org }, user } => Operation::RemoveUser { org, user },
    }
}
