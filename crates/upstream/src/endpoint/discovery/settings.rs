//! Settings of discovery, and what it finds by them.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use rustls::pki_types::ServerName;

use super::source::Source;
use crate::settings::Endpoint;

/// Settings of discovery.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Origin of the sources.
    pub sources: Sources,
    /// Name servers to ask; none: those of the system.
    pub servers: Vec<SocketAddr>,
}

/// Origin of the sources.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Sources {
    /// Sources of the configuration, at least one.
    Listed(Vec<Source>),
    /// Sources in a file, one in each line.
    File {
        /// The file.
        path: PathBuf,
        /// Name that certificates must be for, instead of the host of each source.
        server_name: Option<ServerName<'static>>,
    },
}

/// Endpoints that have changed.
#[derive(Clone, Debug)]
pub struct Discovered {
    /// Name of the upstream.
    pub upstream: Arc<str>,
    /// Number of the [`follow`](super::Discovery::follow) by which they were found.
    pub(super) epoch: u64,
    /// All endpoints, at least one.
    pub endpoints: Vec<Endpoint>,
}

impl Settings {
    /// Endpoints before anything was looked up: those that need no look-up, and for each name a place without an
    /// address.
    pub fn known_endpoints(&self) -> Vec<Endpoint> {
        match &self.sources {
            Sources::Listed(sources) => sources.iter().map(Source::endpoint).collect(),
            Sources::File { path, .. } => vec![Source::placeholder(path).endpoint()],
        }
    }
}
