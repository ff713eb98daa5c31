//! `keygate init`: writes a first configuration in front of a server of the caller, with an organization and its user,
//! and prints the next commands.
//!
//! - Nothing is written before all answers, the directory and the whole file were checked.
//! - No existing file is overwritten.
//! - The organization and the user are made by the operations of `keygate org create` and `keygate user create`, and
//!   are in the audit journal like theirs.

mod questions;
mod directory;
mod first_config;
mod next_commands;

use std::io::{self, IsTerminal as _};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};

use anyhow::anyhow;
use serde::de::IgnoredAny;

use super::calls::{self, create_org};
use super::demo::free_address;
use super::installation::Installation;
use super::{CliError, ExitStatus, control, output, service_user};
use crate::config::Config;
use ::control::management::UserKind;
use ::upstream::{Source, SourceError};
use domain::identity::Permission;

/// Default address of the gateway, and preferred port of `/metrics`.
const LISTEN: &str = "127.0.0.1:8080";
const ADMIN_PORT: u16 = 9464;
/// First organization, its user, and the permission that the route needs and the user has.
const ORG: &str = "main";
const USER: &str = "admin@example.com";
const PERMISSION: &str = "api:call";

/// Arguments of `keygate init`.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Server that requests are forwarded to, such as http://127.0.0.1:3000
    #[arg(long, value_name = "URL", value_parser = parse_upstream)]
    upstream: Option<String>,
    /// Address that the gateway listens on [default: 127.0.0.1:8080]
    #[arg(long, value_name = "ADDRESS", value_parser = parse_listen)]
    listen: Option<SocketAddr>,
    /// Directory of keygate.yaml, the state, the audit journal and the admin socket [default: keygate]
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
}

/// Answers to all questions, each valid by itself.
struct Answers {
    upstream: String,
    listen: SocketAddr,
    dir: PathBuf,
}

impl Args {
    /// Runs the command. `is_file_named` is true with `--config`, which says nothing about the other files.
    pub(super) fn run(self, is_file_named: bool) -> Result<(), CliError> {
        if is_file_named {
            let message = anyhow!("the file is keygate.yaml in the directory of --dir; give --dir instead of --config");
            return Err(CliError::new(ExitStatus::Usage, message));
        }
        let answers = self.complete()?;
        let file = answers.dir.join(directory::CONFIG_FILE);
        let text = first_config::text(&answers, admin_address(answers.listen)?)?;
        let config = Config::parse(&file, &text).map_err(|errors| CliError::new(ExitStatus::Configuration, errors))?;
        service_user::check_owner(&config)?;
        directory::write(&answers.dir, &text)?;
        create_user(&file).map_err(|error| {
            let advice = "create them with `keygate org create` and `keygate user create`";
            error.context(format!("{} is written without an organization and a user; {advice}", file.display()))
        })?;
        note_occupied(answers.listen);
        Ok(output::lines(next_commands::text(&answers, &file))?)
    }

    /// The arguments with their defaults; without the upstream, the answers of a person at a terminal.
    fn complete(self) -> Result<Answers, CliError> {
        let Self { upstream, listen, dir } = self;
        let Some(upstream) = upstream else {
            return if io::stdin().is_terminal() { questions::ask_missing(listen, dir) } else { Err(no_terminal()) };
        };
        let listen = listen.unwrap_or_else(|| LISTEN.parse().expect("the default is an address"));
        let dir = dir.unwrap_or_else(|| directory::DEFAULT.into());
        directory::check_free(&dir).map_err(|error| CliError::new(ExitStatus::Failed, error))?;
        Ok(Answers { upstream, listen, dir })
    }
}

fn no_terminal() -> CliError {
    let advice = "there is no terminal to ask at; give --upstream URL, such as http://127.0.0.1:3000";
    let more = "optional: --listen ADDRESS (default: 127.0.0.1:8080), --dir DIR (default: keygate)";
    CliError::new(ExitStatus::Usage, anyhow!("{advice}; {more}"))
}

/// Checks an upstream as the configuration does.
fn parse_upstream(text: &str) -> Result<String, SourceError> {
    text.parse::<Source>().map(|_| text.to_owned())
}

/// Parses the address of the gateway. Its port has to be known, because the next commands name it.
fn parse_listen(text: &str) -> Result<SocketAddr, String> {
    let address = text.parse().ok().filter(|address: &SocketAddr| address.port() != 0);
    address.ok_or_else(|| format!("`{text}` is not an IP address with a port, such as 127.0.0.1:8080 or [::1]:8080"))
}

/// Chooses the address of `/metrics`: the usual port, or another one where that is taken.
fn admin_address(listen: SocketAddr) -> anyhow::Result<SocketAddr> {
    let preferred = if listen.port() == ADMIN_PORT { 0 } else { ADMIN_PORT };
    free_address(IpAddr::V4(Ipv4Addr::LOCALHOST), preferred)
}

/// Creates the organization and its user in the new state.
fn create_user(file: &Path) -> Result<(), CliError> {
    let permission: Permission = PERMISSION.parse().expect("it is a permission");
    let user = calls::create_user(ORG, USER, UserKind::Person, None, &[permission]);
    control::with_server(&Installation::new(Some(file.to_owned()), None), async |server| {
        server.perform::<IgnoredAny>(&create_org(ORG)).await?;
        server.perform::<IgnoredAny>(&user).await
    })?;
    Ok(())
}

/// Notes that the gateway could not listen now. The file stays: the other program may be what it replaces.
fn note_occupied(listen: SocketAddr) {
    let bound = TcpListener::bind(listen);
    if bound.is_err_and(|error| error.kind() == io::ErrorKind::AddrInUse) {
        output::note(format_args!(
            "{listen} is in use: stop the program that listens there, or change `listen` in the file"
        ));
    }
}
