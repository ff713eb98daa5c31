//! `keygate session`: creates sign-in links, and lists and ends web sessions.

use clap::Subcommand;

use super::installation::Installation;
use super::show::Format;
use super::{CliError, list};
use ::control::admin::Operation;
use domain::identity::SessionId;

/// Arguments of `keygate session`.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(subcommand)]
    command: Command,
    #[command(flatten)]
    format: Format,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Print a link that signs a user in to the dashboard; valid once, for five minutes
    Link {
        /// Id or name of the organization
        #[arg(long)]
        org: String,
        /// Id or email address of the user
        user: String,
    },
    /// List the web sessions
    List {
        /// Only sessions of users of the organization with this id or name
        #[arg(long)]
        org: Option<String>,
    },
    /// End a session, or all sessions of a user, on all gateways at once
    End {
        /// Session id, as shown by `keygate session list`
        #[arg(required_unless_present = "user", conflicts_with = "user")]
        session: Option<SessionId>,
        /// All sessions of the user with this id or email address
        #[arg(long, requires = "org")]
        user: Option<String>,
        /// Organization of the user, by id or name
        #[arg(long, requires = "user")]
        org: Option<String>,
    },
}

impl Args {
    pub(super) fn run(self, installation: &Installation) -> Result<(), CliError> {
        list::print(installation, operation(self.command), self.format)
    }
}

fn operation(command: Command) -> Operation {
    match command {
        Command::Link { org, user } => Operation::LinkSession { org, user },
        Command::List { org } => Operation::list_sessions(org),
        Command::End { session: Some(session), .. } => Operation::EndSession { session },
        Command::End { session: None, user, org } => {
            let org = org.unwrap_or_default();
            let user = user.unwrap_or_default();
            Operation::EndSessions { org, user }
        }
    }
}
