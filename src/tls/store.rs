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
    doubt: Mutex<Option<Doubt>>,
}

/// Files that are of no use.
struct Doubt {
    fingerprint: Fingerprint,
    /// Whether anybody was told. When first seen, they may be about to be written.
    told: bool,
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
        Ok(Self { in_force: ArcSwap::from_pointee(made), doubt: Mutex::default() })
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

    /// Looks at the files again, and puts into force what has changed, if anything. Returns the files that have.
    ///
    /// Contents count, not times or links: it is cheap enough to be called every second.
    ///
    /// # Errors
    /// [`Error`] when two looks in a row have seen the same files, and they are of no use; once for each content. What
    /// was in force still is.
    pub fn reload(&self) -> Result<Vec<PathBuf>, Error> {
        let in_force = self.in_force.load_full();
        let files = Files::read(in_force.settings.files());
        let fingerprint = files.fingerprint();
        let mut doubt = self.doubt.lock().unwrap_or_else(PoisonError::into_inner);
        let before = doubt.take().filter(|doubt| doubt.fingerprint == fingerprint);
        let changed = fingerprint.differences(&in_force.fingerprint);
        if changed.is_empty() {
            return Ok(changed);
        }
        match Made::of(&in_force.settings, &files, Some(&in_force)) {
            Ok(made) => {
                self.in_force.store(Arc::new(made));
                Ok(changed)
            }
            Err(error) => {
                let untold = before.as_ref().is_some_and(|before| !before.told);
                *doubt = Some(Doubt { fingerprint, told: before.is_some() });
                if untold { Err(error) } else { Ok(Vec::new()) }
            }
        }
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
        self.in_force.store(Arc::new(made));
    }
}
