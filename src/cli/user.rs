//! `keygate user`: manages the users of an organization.

use clap::Subcommand;

use super::installation::Installation;
use super::{CliError, RemoteCommand, list};
use ::control::admin::Operation;
use domain::identity::Permission;

/// Commands of `keygate user`.
#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// Create a user: a person with an email address, or a service with a responsible person
    Create {
        #[command(flatten)]
        org: InOrg,
        /// Email address; must be unique in the organization
        #[arg(required_unless_present = "service")]
        email: Option<String>,
        /// Name of a service, which never signs in; must be unique in the organization
        #[arg(long, value_name = "NAME", conflicts_with = "email", requires = "responsible")]
        service: Option<String>,
        /// Id or email address of the person who is responsible for the service
        #[arg(long, value_name = "EMAIL", requires = "service", conflicts_with = "email")]
        responsible: Option<String>,
        #[command(flatten)]
        permissions: Permissions,
    },
    /// List users in the order of their creation, including removed ones and services
    List {
        /// Only users of the organization with this id or name; default: of all organizations
        #[arg(long, value_name = "ORG")]
        org: Option<String>,
        /// Only users with this email address: in which organizations is this person?
        #[arg(long, value_name = "EMAIL")]
        email: Option<String>,
    },
    /// Replace the permissions of a user; takes effect for its keys from the next request on
    Permit {
        #[command(flatten)]
        org: InOrg,
        /// Id or email address of the user, or name of a service
        user: String,
        #[command(flatten)]
        permissions: Permissions,
    },
    /// Make another person responsible for a service
    Reassign {
        #[command(flatten)]
        org: InOrg,
        /// Id or name of the service
        user: String,
        /// Id or email address of the person
        #[arg(long, value_name = "EMAIL")]
        responsible: String,
    },
    /// Refuse all requests of a user from now on, until it is resumed; ends its sessions, and keeps its keys
    Suspend {
        #[command(flatten)]
        org: InOrg,
        /// Id or email address of the user, or name of a service
        user: String,
    },
    /// Admit requests of a suspended user again
    Resume {
        #[command(flatten)]
        org: InOrg,
        /// Id or email address of the user, or name of a service
        user: String,
    },
    /// Remove a user and revoke its keys; cannot be undone
    Remove {
        #[command(flatten)]
        org: InOrg,
        /// Id or email address of the user, or name of a service
        user: String,
    },
}

#[derive(Debug, clap::Args)]
pub(super) struct InOrg {
    /// Id or name of the organization
    #[arg(long, value_name = "ORG")]
    org: String,
}

#[derive(Debug, clap::Args)]
pub(super) struct Permissions {
    /// Permission of the user, such as queries:read; may be repeated
    #[arg(long = "permission", value_name = "PERMISSION")]
    permissions: Vec<Permission>,
}

impl RemoteCommand<Command> {
    pub(super) fn run(self, installation: &Installation) -> Result<(), CliError> {
        match self.command {
            Command::List { org, email } => list::print_users(installation, org, email, self.format),
            command => list::print(installation, operation(command), self.format),
        }
    }
}

fn operation(command: Command) -> Operation {
    match command {
        Command::Create { org: InOrg { org }, email, service, responsible, permissions } => {
            let Permissions { permissions } = permissions;
            match (email, service.zip(responsible)) {
                (_, Some((name, responsible))) => Operation::CreateService { org, name, responsible, permissions },
                (Some(email), None) => Operation::CreateUser { org, email, permissions },
                (None, None) => unreachable!("one of the two is required"),
            }
        }
        Command::List { .. } => unreachable!("lists are printed by themselves"),
        Command::Permit { org: InOrg { org }, user, permissions: Permissions { permissions } } => {
            Operation::PermitUser { org, user, permissions }
        }
        Command::Reassign { org: InOrg { org }, user, responsible } => {
            Operation::ReassignUser { org, user, responsible }
        }
        Command::Suspend { org: InOrg { org }, user } => Operation::SuspendUser { org, user },
        Command::Resume { org: InOrg { org }, user } => Operation::ResumeUser { org, user },
        Command::Remove { org: InOrg { org }, user } => Operation::RemoveUser { org, user },
    }
}
