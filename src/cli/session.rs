//! `keygate session`: links to sign in by, and who is signed in.

use clap::Subcommand;

use super::show::{self, Format};
use super::{CliError, control};
use crate::admin::Operation;
use crate::config::Config;
use crate::identity::SessionId;

/// What can be done with web sessions.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(subcommand)]
    command: Command,
    #[command(flatten)]
    format: Format,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Print a link that signs a user in to the dashboard: once, within five minutes
    Link {
        /// The organization's id or name
        #[arg(long)]
        org: String,
        /// The user's id or email address
        user: String,
    },
    /// List who is signed in
    List {
        /// Only people of the organization with this id or name
        #[arg(long)]
        org: Option<String>,
    },
    /// Sign somebody out, everywhere at once
    End {
        /// The session, as `keygate session list` shows it
        #[arg(required_unless_present = "user", conflicts_with = "user")]
        session: Option<SessionId>,
        /// All sessions of the user with this id or email address
        #[arg(long, requires = "org")]
        user: Option<String>,
        /// The user's organization, by id or name
        #[arg(long, requires = "user")]
        org: Option<String>,
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
        Command::Link { org, user } => Operation::LinkSession { org, user },
        Command::List { org } => Operation::ListSessions { org },
        Command::End { session: Some(session), .. } => Operation::EndSession { session },
        Command::End { session: None, user, org } => {
            let (org, user) = (org.unwrap_or_default(), user.unwrap_or_default());
            Operation::EndSessions { org, user }
        }
    }
}
