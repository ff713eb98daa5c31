//! The TLS of a listener, reloaded from its files while in use.
//!
//! - A handshake uses the configuration that is active when it begins, and its connection keeps it to the end.
//! - Certificates, authorities and ticket keys are replaced in one step, after all of them have been read and checked:
//!   that is why the whole configuration is swapped, and not each part of it.
//! - Changes are found by the contents of the files, not by times or links. Reading them is cheap enough to be done
//!   every second.
//! - Files that cannot be used leave the active configuration as it is. They are an error when two reloads in a row
//!   have read them: after the first they may be in the middle of being written.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use rustls::server::Acceptor;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::server::TlsStream;
use tokio_rustls::{LazyConfigAcceptor, TlsAcceptor};

use super::certificate::CertificateExpiry;
use super::error::Error;
use super::files::{FileContents, Fingerprints};
use super::reloadable::Reloadable;
use super::server_config::{BuiltServerConfig, ServerSettings};

/// The TLS of one listener.
pub struct ServerTls(Reloadable<BuiltServerConfig>);

/// A configuration that is built and checked, and not active yet.
pub struct PreparedTls(BuiltServerConfig, Fingerprints);

impl ServerTls {
    /// Reads all files of the settings.
    ///
    /// # Errors
    /// [`Error`] names the file that cannot be used.
    pub fn open(settings: &ServerSettings) -> Result<Self, Error> {
        let files = FileContents::read(settings.paths());
        Ok(Self(Reloadable::new(BuiltServerConfig::build(settings, &files, None)?, files.fingerprints())))
    }

    /// Shakes hands over a connection.
    ///
    /// # Errors
    /// The connection failed, or the handshake did; then the client has been sent an alert.
    pub async fn accept<S: AsyncRead + AsyncWrite + Unpin>(&self, stream: S) -> io::Result<TlsStream<S>> {
        let active = self.0.load();
        let handshake = LazyConfigAcceptor::new(Acceptor::default(), stream).await?;
        let config = active.for_client(handshake.client_hello().cipher_suites());
        handshake.into_stream(Arc::clone(config)).await
    }

    /// The acceptor for the next client that does not prefer ChaCha20.
    pub fn acceptor(&self) -> TlsAcceptor {
        TlsAcceptor::from(Arc::clone(&self.0.load().config))
    }

    /// The files that [`ServerTls::reload`] reads.
    pub fn files(&self) -> Vec<PathBuf> {
        self.0.load().settings.paths().into_iter().map(PathBuf::from).collect()
    }

    /// The ends of the active certificates, in the order of the configuration.
    pub fn expiries(&self) -> Vec<CertificateExpiry> {
        self.0.load().expiries.clone()
    }

    /// Reads the files again, and activates their contents if they have changed. Returns the files that have.
    ///
    /// # Errors
    /// [`Error`] when two reloads in a row have read the same contents, and they cannot be used; once for each
    /// contents. The active configuration stays.
    pub fn reload(&self) -> Result<Vec<PathBuf>, Error> {
        self.0.reload(
            |active| FileContents::read(active.settings.paths()),
            |active, files| BuiltServerConfig::build(&active.settings, files, Some(active)),
        )
    }

    /// Builds the configuration of other settings, to be installed when everything else is ready, too.
    ///
    /// # Errors
    /// [`Error`] names the file that cannot be used.
    pub fn prepare(&self, settings: &ServerSettings) -> Result<PreparedTls, Error> {
        let files = FileContents::read(settings.paths());
        let built = BuiltServerConfig::build(settings, &files, Some(&self.0.load()))?;
        Ok(PreparedTls(built, files.fingerprints()))
    }

    /// Activates a prepared configuration.
    pub fn install(&self, PreparedTls(built, fingerprints): PreparedTls) {
        self.0.replace(built, fingerprints);
    }
}
