//! What is in force, and files that take its place when they change.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use arc_swap::ArcSwap;

use super::error::Error;
use super::files::{Files, Fingerprint};

/// Something made of files, replaced in one step while it is in use.
pub(super) struct Current<M> {
    in_force: ArcSwap<Made<M>>,
    doubt: Mutex<Option<Doubt>>,
}

struct Made<M> {
    value: Arc<M>,
    fingerprint: Fingerprint,
}

/// Files that are of no use.
struct Doubt {
    fingerprint: Fingerprint,
    /// True if anybody was told. When first seen, they may be about to be written.
    told: bool,
}

impl<M> Current<M> {
    /// What was made of these files is in force.
    pub(super) fn new(value: M, fingerprint: Fingerprint) -> Self {
        let made = Made { value: Arc::new(value), fingerprint };
        Self { in_force: ArcSwap::from_pointee(made), doubt: Mutex::default() }
    }

    pub(super) fn load(&self) -> Arc<M> {
        Arc::clone(&self.in_force.load().value)
    }

    /// Puts something else in force. A look that goes on meanwhile is waited for: what it makes is of what was in force.
    pub(super) fn replace(&self, value: M, fingerprint: Fingerprint) {
        let mut doubt = self.doubt.lock().unwrap_or_else(PoisonError::into_inner);
        *doubt = None;
        self.put(value, fingerprint);
    }

    fn put(&self, value: M, fingerprint: Fingerprint) {
        self.in_force.store(Arc::new(Made { value: Arc::new(value), fingerprint }));
    }

    /// Puts into force what is made of the files, when they have changed. Returns those that have.
    ///
    /// One look at a time, reading included: a slow one must not bring back what a later one has replaced.
    ///
    /// # Errors
    /// What `make` says of the same files the second time in a row; once for each content.
    pub(super) fn reload(
        &self,
        read: impl FnOnce(&M) -> Files,
        make: impl FnOnce(&M, &Files) -> Result<M, Error>,
    ) -> Result<Vec<PathBuf>, Error> {
        let mut doubt = self.doubt.lock().unwrap_or_else(PoisonError::into_inner);
        let in_force = self.in_force.load_full();
        let files = read(&in_force.value);
        let fingerprint = files.fingerprint();
        let before = doubt.take().filter(|doubt| doubt.fingerprint == fingerprint);
        let changed = fingerprint.differences(&in_force.fingerprint);
        if changed.is_empty() {
            return Ok(changed);
        }
        match make(&in_force.value, &files) {
            Ok(value) => {
                self.put(value, fingerprint);
                Ok(changed)
            }
            Err(error) => {
                let untold = before.as_ref().is_some_and(|before| !before.told);
                *doubt = Some(Doubt { fingerprint, told: before.is_some() });
                if untold { Err(error) } else { Ok(Vec::new()) }
            }
        }
    }
}
