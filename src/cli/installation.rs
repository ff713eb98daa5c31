//! Installation that a command works on: the configuration file and the admin socket of the gateway, or a gateway
//! elsewhere.
//!
//! A gateway goes on serving by the content that it has read when its file is broken afterwards, and what ends an
//! incident has to work then as well. So a command reads no more of the file than the path of the admin socket, and the
//! whole file only when no gateway listens there, or when it reads the journal itself. Where not even the path can be
//! read, the gateway is looked for at its default places.

use std::cell::OnceCell;
use std::env;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use anyhow::anyhow;

use super::remote::{RemoteArgs, RemoteServer};
use super::{CliError, ExitStatus, output};
use crate::config::{self, Config};
use platform::settings::SettingsErrors;

/// Environment variable with the path of the configuration file.
const CONFIG_VARIABLE: &str = "KEYGATE_CONFIG";
/// Configuration files that are looked for without `--config` and the variable: of `keygate init`, of a checkout, and
/// of a package.
const CONFIG_FILES: [&str; 3] = ["keygate/keygate.yaml", "config/keygate.yaml", "/etc/keygate/keygate.yaml"];
/// Admin sockets that are looked for when the file cannot be read, from its directory: those of the demo, of a
/// checkout, and of the package, the image and the chart.
const SOCKETS: [&str; 3] = ["admin.sock", "../data/admin.sock", "/var/lib/keygate/admin.sock"];

/// Configuration file and admin socket.
pub(super) struct Installation {
    file: PathBuf,
    /// Value of `--socket`.
    given_socket: Option<PathBuf>,
    /// The admin socket by the file, once it was needed.
    found: OnceCell<AdminSocket>,
    /// The gateway elsewhere that the command works on, in place of these.
    remote: Option<RemoteServer>,
}

/// Admin socket of the file, or the default place with the reason why the file names none.
struct AdminSocket {
    path: PathBuf,
    unread: Option<SettingsErrors>,
}

impl Installation {
    /// From the values of `--config` and `--socket`.
    pub(super) fn new(file: Option<PathBuf>, given_socket: Option<PathBuf>) -> Self {
        Self { file: file.unwrap_or_else(default_file), given_socket, found: OnceCell::new(), remote: None }
    }

    /// The same, or the gateway elsewhere that the options of a command name.
    pub(super) fn with_remote(self, options: Option<&RemoteArgs>) -> Result<Self, CliError> {
        let Some(options) = options else { return Ok(self) };
        let remote = options.resolve(self.given_socket.is_some())?;
        Ok(Self { remote, ..self })
    }

    /// The gateway elsewhere that the command works on.
    pub(super) fn remote(&self) -> Option<&RemoteServer> {
        self.remote.as_ref()
    }

    /// Path of the configuration file.
    pub(super) fn file(&self) -> &Path {
        &self.file
    }

    /// Reads the whole configuration file.
    pub(super) fn config(&self) -> Result<Config, CliError> {
        Config::load(&self.file).map_err(configuration_error)
    }

    /// Path of the admin socket. One line on standard error says where it comes from when the file does not name it.
    pub(super) fn socket(&self) -> &Path {
        match &self.given_socket {
            Some(path) => path,
            None => &self.found.get_or_init(|| AdminSocket::of_file(&self.file)).path,
        }
    }

    /// Address of the admin listener.
    pub(super) fn admin_address(&self) -> Result<SocketAddr, CliError> {
        config::admin_address(&self.file).map_err(configuration_error)
    }

    /// Returns whether a command may do its work without a gateway: not where a socket was named for it.
    pub(super) fn may_work_offline(&self) -> bool {
        self.given_socket.is_none()
    }

    /// The error of a command for which no gateway listens: the errors of the file, when they are why none was found.
    pub(super) fn unreachable(&self) -> CliError {
        let socket = self.socket().display();
        match self.found.get().and_then(|found| found.unread.clone()) {
            Some(unread) => configuration_error(unread),
            None => CliError::new(ExitStatus::Unreachable, anyhow!("{socket}: no gateway listens on this socket")),
        }
    }
}

impl AdminSocket {
    fn of_file(file: &Path) -> Self {
        match config::admin_socket(file) {
            Ok(path) => Self { path, unread: None },
            Err(unread) => {
                let path = default_socket(file);
                let reason = unread.to_string();
                let reason = reason.lines().next().unwrap_or_default();
                output::note(format_args!("{reason}; using the admin socket {} (or --socket PATH)", path.display()));
                Self { path, unread: Some(unread) }
            }
        }
    }
}

/// The file of the environment; else the first one that exists.
pub(super) fn default_file() -> PathBuf {
    if let Some(file) = env::var_os(CONFIG_VARIABLE).filter(|file| !file.is_empty()) {
        return file.into();
    }
    let [first, ..] = CONFIG_FILES;
    CONFIG_FILES.iter().find(|file| Path::new(file).exists()).unwrap_or(&first).into()
}

/// The first default place at which there is something; else the last one.
fn default_socket(file: &Path) -> PathBuf {
    let directory = file.parent().unwrap_or(Path::new(""));
    let places = SOCKETS.map(|place| directory.join(place));
    let [.., last] = &places;
    places.iter().find(|place| place.exists()).unwrap_or(last).clone()
}

fn configuration_error(errors: SettingsErrors) -> CliError {
    CliError::new(ExitStatus::Configuration, errors)
}
