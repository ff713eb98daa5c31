//! The TLS of outgoing connections, reloaded from its files while in use. It guarantees the same as a listener's
//! ([`super::server_tls`]).

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use tokio_rustls::TlsConnector;

use super::client_config::{BuiltClientConfig, ClientSettings};
use super::error::Error;
use super::reloadable::Reloadable;

/// The TLS of outgoing connections.
pub struct ClientTls {
    settings: ClientSettings,
    /// The protocols that are offered (ALPN).
    protocols: &'static [&'static [u8]],
    active: Reloadable<BuiltClientConfig>,
}

impl fmt::Debug for ClientTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientTls").field("settings", &self.settings).finish_non_exhaustive()
    }
}

impl ClientTls {
    /// Reads all files of the settings.
    ///
    /// # Errors
    /// [`Error`] names the file that cannot be used.
    pub fn open(settings: &ClientSettings, protocols: &'static [&'static [u8]]) -> Result<Self, Error> {
        let files = settings.read_files();
        let built = BuiltClientConfig::build(settings, &files, protocols, None)?;
        let active = Reloadable::new(built, files.fingerprints());
        Ok(Self { settings: settings.clone(), protocols, active })
    }

    /// The connector for the next connection.
    pub fn connector(&self) -> TlsConnector {
        TlsConnector::from(Arc::clone(&self.active.load().config))
    }

    /// The end of our own certificate, Unix time; `None` without one.
    pub fn not_after(&self) -> Option<i64> {
        self.active.load().validity.map(|validity| validity.not_after)
    }

    /// Reloads the files, as [`super::ServerTls::reload`] does.
    ///
    /// # Errors
    /// As for [`super::ServerTls::reload`].
    pub fn reload(&self) -> Result<Vec<PathBuf>, Error> {
        self.active.reload(
            |_| self.settings.read_files(),
            |active, files| BuiltClientConfig::build(&self.settings, files, self.protocols, Some(active)),
        )
    }
}
