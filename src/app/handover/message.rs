//! Messages of a hand-over, and the identity by which two processes find out that they have the same configuration.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::app::listeners::ListenerPlace;
use crate::config::Config;

/// Version of the messages. Another version is refused.
pub(super) const VERSION: u32 = 2;

/// First message of the new process.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Hello {
    pub(super) version: u32,
    /// Version of the program.
    pub(super) program: String,
    /// Also from a gateway in full service, and not only from one that drains.
    pub(super) replaces: bool,
    pub(super) identity: Identity,
}

/// Later messages of the new process.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum FromNew {
    Ready,
    Prepared,
    Serving,
}

/// Messages of the old process.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum FromOld {
    Refused {
        reason: String,
    },
    /// Open listening sockets of a place, perhaps not all of them.
    Listeners {
        place: ListenerPlace,
        /// systemd has them, too.
        is_shared: bool,
    },
    /// All listening sockets were sent.
    Offered,
    /// The files of the locks: of the journal, and before it, with an embedded state, of the state.
    Locks,
    Commit,
    Relinquished,
}

/// The part of a configuration that must be the same in both processes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Identity {
    workers: usize,
    listen: Vec<SocketAddr>,
    admin: SocketAddr,
    /// The embedded state's file; none on Redis.
    state: Option<PathBuf>,
    audit: PathBuf,
}

impl Identity {
    pub(super) fn new(config: &Config) -> Self {
        let absolute = |path: &Path| std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
        Self {
            workers: config.workers,
            listen: config.listen.iter().map(|listener| listener.address).collect(),
            admin: config.admin.address,
            state: match &config.state {
                state::Settings::Embedded(settings) => Some(absolute(&settings.path)),
                state::Settings::Redis(_) => None,
            },
            audit: absolute(&config.audit.path),
        }
    }

    /// The keys of the configuration that differ.
    pub(super) fn differences(&self, other: &Self) -> Vec<&'static str> {
        let same = [
            ("workers", self.workers == other.workers),
            ("listen", self.listen == other.listen),
            ("admin.address", self.admin == other.admin),
            ("state", self.state == other.state),
            ("audit.path", self.audit == other.audit),
        ];
        same.into_iter().filter(|(_, is_same)| !is_same).map(|(key, _)| key).collect()
    }
}
