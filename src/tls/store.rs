//! What a listener shows its clients, replaced while it serves.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use arc_swap::ArcSwap;
use tokio_rustls::TlsAcceptor;

use super::certificate::Expiry;
use super::error::Error;
use super::files::{Files, Fingerprint};
use super::server::{Made, ServerSettings};

/// One listener's TLS.
///
/// - A connection is accepted with what is in force at that moment, and keeps it to its end.
/// - Certificates, authorities and ticket keys are replaced in one step, after all of them have been read and checked:
///   that is why the whole configuration is swapped, and not each part within it.
pub struct Store {
    in_force: ArcSwap<Made>,
    /// What the files were like when they were last looked at, of use or not.
    seen: Mutex<Fingerprint>,
}

/// What will be in force once it is installed.
pub struct Ready(Made);

impl Store {
    /// Reads all files of the settings.
    ///
    /// # Errors
    /// [`Error`] names the file that is of no use.
    pub fn open(settings: &ServerSettings) -> Result<Self, Error> {
        let files = Files::read(settings.files());
        let made = Made::of(settings, &files, None)?;
        Ok(Self { seen: Mutex::new(made.fingerprint.clone()), in_force: ArcSwap::from_pointee(made) })
    }

    /// What to accept the next connection with.
    pub fn acceptor(&self) -> TlsAcceptor {
        TlsAcceptor::from(Arc::clone(&self.in_force.load().config))
    }

    /// The files that are read: when one changes, [`Store::reload`] makes a difference.
    pub fn files(&self) -> Vec<PathBuf> {
        self.in_force.load().settings.files().into_iter().map(PathBuf::from).collect()
    }

    /// When the certificates in force end, in the order of the configuration.
    pub fn expiries(&self) -> Vec<Expiry> {
        self.in_force.load().expiries.clone()
    }

    /// Looks at the files again. Nothing, when they are as they were at the last look; otherwise they are in force now,
    /// and those that have changed are returned.
    ///
    /// Contents count, not times or links: it is cheap enough to be called every second.
    ///
    /// # Errors
    /// [`Error`] when the files have changed and are of no use, once for each change: what was in force still is.
    pub fn reload(&self) -> Result<Option<Vec<PathBuf>>, Error> {
        let settings = self.in_force.load().settings.clone();
        let files = Files::read(settings.files());
        let fingerprint = files.fingerprint();
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        if *seen == fingerprint {
            return Ok(None);
        }
        *seen = fingerprint;
        let made = Made::of(&settings, &files, Some(&self.in_force.load()))?;
        Ok(Some(self.put_in_force(made)))
    }

    /// Reads the files of other settings, to be installed when everything else is ready, too.
    ///
    /// # Errors
    /// [`Error`] names the file that is of no use.
    pub fn prepare(&self, settings: &ServerSettings) -> Result<Ready, Error> {
        let files = Files::read(settings.files());
        Made::of(settings, &files, Some(&self.in_force.load())).map(Ready)
    }

    /// Puts into force what was prepared.
    pub fn install(&self, Ready(made): Ready) {
        *self.seen.lock().unwrap_or_else(PoisonError::into_inner) = made.fingerprint.clone();
        self.put_in_force(made);
    }

    fn put_in_force(&self, made: Made) -> Vec<PathBuf> {
        let changed = made.fingerprint.differences(&self.in_force.load().fingerprint);
        self.in_force.store(Arc::new(made));
        changed
    }
}
