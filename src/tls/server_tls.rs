//! Both sides' configurations, replaced while they are in use.
//!
//! - A connection is made with what is in force at that moment, and keeps it to its end.
//! - Certificates, authorities and ticket keys are replaced in one step, after all of them have been read and checked:
//!   that is why the whole configuration is swapped, and not each part within it.
//! - What has changed is found by its content, not by times or links: to look is cheap enough to be done every second.
//! - Files that are of no use leave what was in force. They are an error when two looks in a row have seen them: before
//!   that they may be about to be written.

use std::path::PathBuf;
use std::sync::Arc;

use rustls::ClientConfig;
use tokio_rustls::{TlsAcceptor, TlsConnector};

use super::certificate::CertificateExpiry;
use super::client_config::ClientSettings;
use super::error::Error;
use super::files::{Files, Fingerprint};
use super::reloadable::Current;
use super::server_config::{Made, ServerSettings};

/// One listener's TLS.
pub struct ServerTls(Current<Made>);

/// What will be in force once it is installed.
pub struct PreparedTls(Made, Fingerprint);

impl ServerTls {
    /// Reads all files of the settings.
    ///
    /// # Errors
    /// [`Error`] names the file that is of no use.
    pub fn open(settings: &ServerSettings) -> Result<Self, Error> {
        let files = Files::read(settings.files());
        Ok(Self(Current::new(Made::of(settings, &files, None)?, files.fingerprint())))
    }

    /// What to accept the next connection with.
    pub fn acceptor(&self) -> TlsAcceptor {
        TlsAcceptor::from(Arc::clone(&self.0.load().config))
    }

    /// The files that are read: when one changes, [`ServerTls::reload`] makes a difference.
    pub fn files(&self) -> Vec<PathBuf> {
        self.0.load().settings.files().into_iter().map(PathBuf::from).collect()
    }

    /// When the certificates in force end, in the order of the configuration.
    pub fn expiries(&self) -> Vec<CertificateExpiry> {
        self.0.load().expiries.clone()
    }

    /// Looks at the files again, and puts into force what has changed, if anything. Returns the files that have.
    ///
    /// # Errors
    /// [`Error`] when two looks in a row have seen the same files, and they are of no use; once for each content. What
    /// was in force still is.
    pub fn reload(&self) -> Result<Vec<PathBuf>, Error> {
        let read = |made: &Made| Files::read(made.settings.files());
        self.0.reload(read, |before, files| Made::of(&before.settings, files, Some(before)))
    }

    /// Reads the files of other settings, to be installed when everything else is ready, too.
    ///
    /// # Errors
    /// [`Error`] names the file that is of no use.
    pub fn prepare(&self, settings: &ServerSettings) -> Result<PreparedTls, Error> {
        let files = Files::read(settings.files());
        Ok(PreparedTls(Made::of(settings, &files, Some(&self.0.load()))?, files.fingerprint()))
    }

    /// Puts into force what was prepared.
    pub fn install(&self, PreparedTls(made, fingerprint): PreparedTls) {
        self.0.replace(made, fingerprint);
    }
}

/// The TLS of connections that we make.
pub struct ClientTls {
    settings: ClientSettings,
    /// The protocols that are offered (ALPN).
    protocols: &'static [&'static [u8]],
    current: Current<Offer>,
}

/// What a server is told, and who we are to it.
pub(super) struct Offer {
    pub(super) config: Arc<ClientConfig>,
    /// The end of our own certificate.
    pub(super) not_after: Option<i64>,
}

impl ClientTls {
    /// Reads all files of the settings.
    ///
    /// # Errors
    /// [`Error`] names the file that is of no use.
    pub fn open(settings: &ClientSettings, protocols: &'static [&'static [u8]]) -> Result<Self, Error> {
        let files = settings.read();
        let current = Current::new(settings.make(&files, protocols)?, files.fingerprint());
        Ok(Self { settings: settings.clone(), protocols, current })
    }

    /// What to make the next connection with.
    pub fn connector(&self) -> TlsConnector {
        TlsConnector::from(Arc::clone(&self.current.load().config))
    }

    /// When our own certificate ends, Unix time; nothing when we have none.
    pub fn not_after(&self) -> Option<i64> {
        self.current.load().not_after
    }

    /// As [`ServerTls::reload`].
    ///
    /// # Errors
    /// As [`ServerTls::reload`].
    pub fn reload(&self) -> Result<Vec<PathBuf>, Error> {
        self.current.reload(|_| self.settings.read(), |_, files| self.settings.make(files, self.protocols))
    }
}
