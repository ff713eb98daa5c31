//! `keygate session`: creates sign-in links, and lists and ends web sessions.

use std::io;

use clap::Subcommand;
use serde_json::json;

use super::call::Call;
use super::installation::Installation;
use super::list::{self, List, Row};
use super::output::{line, note, or_dash, seconds};
use super::show::{self, Fields, Format, Shown};
use super::table::Column;
use super::{CliError, control};
use ::control::management::{Link, Session};
use domain::identity::SessionId;
use domain::page::Page;

/// Note for an empty list.
const EMPTY: &str = "there are no sessions";

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
        let format = self.format;
        match self.command {
            Command::Link { org, user } => {
                let call = Call::post(&["orgs", &org, "users", &user, "sign-in-links"]).with_secret();
                show::perform::<Link>(installation, &call, format)
            }
            Command::List { org } => {
                let call = Call::get(&["sessions"]).with_query(&json!({ "org": org }));
                list::print::<Session>(installation, call, EMPTY, format)
            }
            Command::End { session: Some(session), .. } => {
                show::perform::<Session>(installation, &Call::delete(&["sessions", &session.to_string()]), format)
            }
            Command::End { session: None, user, org } => {
                let (org, user) = (org.unwrap_or_default(), user.unwrap_or_default());
                let call = Call::delete(&["orgs", &org, "users", &user, "sessions"]);
                let ended: Page<Session> = control::perform(installation, &call)?;
                let mut list = List::new(EMPTY, format);
                list.page(&ended.items)?;
                Ok(list.end()?)
            }
        }
    }
}

impl Row for Session {
    const COLUMNS: &'static [Column<Self>] = &[
        Column::new("ID", 1, |session| session.id.to_string()),
        Column::new("USER", 2, |session| session.email.clone()),
        Column::new("ORG", 7, |session| session.org.to_string()),
        Column::new("BY", 6, |session| session.provider.clone().unwrap_or_else(|| "link".into())),
        Column::new("SEEN", 4, |session| seconds(session.seen)),
        Column::new("EXPIRES", 3, |session| seconds(session.expires)),
        Column::new("IP", 5, |session| or_dash(session.ip)),
    ];
}

impl Shown for Session {
    fn fields(&self) -> Fields {
        self.named(&["id", "user", "organization", "by", "seen", "expires", "ip"])
    }
}

impl Shown for Link {
    fn show(&self) -> io::Result<()> {
        note(format_args!("sign-in link for {}, valid once, until {}:", self.email, seconds(self.expires)));
        line(self.url.expose())
    }

    fn way_out(&self) -> Option<String> {
        let ends = seconds(self.expires);
        Some(format!("the sign-in link for {} is lost, and ends at {ends}; create another one", self.email))
    }
}
