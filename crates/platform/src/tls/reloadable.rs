//! A value built of files, rebuilt when they change.

use std::path::PathBuf;
use std::sync::Arc;

use arc_swap::ArcSwap;
use parking_lot::Mutex;

use super::error::Error;
use super::files::{FileContents, Fingerprints};

/// A value built of files, replaced in one step while it is in use.
///
/// - Readers never wait. Reloads and replacements wait for one another: a slow reload must not bring back what a later
///   replacement has removed.
pub(super) struct Reloadable<T> {
    active: ArcSwap<Active<T>>,
    /// The failure of the last reload, if it failed. Locked for as long as a reload or replacement lasts.
    failure: Mutex<Option<ReloadFailure>>,
}

struct Active<T> {
    value: Arc<T>,
    fingerprints: Fingerprints,
}

/// Changed files that cannot be used.
struct ReloadFailure {
    fingerprints: Fingerprints,
    /// True once the failure was returned as an error: at the second reload that reads the same contents.
    is_reported: bool,
}

impl<T> Reloadable<T> {
    /// A value that was built of files with these fingerprints.
    pub(super) fn new(value: T, fingerprints: Fingerprints) -> Self {
        let active = Active { value: Arc::new(value), fingerprints };
        Self { active: ArcSwap::from_pointee(active), failure: Mutex::default() }
    }

    /// The active value.
    pub(super) fn load(&self) -> Arc<T> {
        Arc::clone(&self.active.load().value)
    }

    /// Replaces the value. Waits for a reload that is going on, which builds on the value before.
    pub(super) fn replace(&self, value: T, fingerprints: Fingerprints) {
        let mut failure = self.failure.lock();
        *failure = None;
        self.activate(value, fingerprints);
    }

    fn activate(&self, value: T, fingerprints: Fingerprints) {
        self.active.store(Arc::new(Active { value: Arc::new(value), fingerprints }));
    }

    /// Reads the files, and rebuilds the value if they have changed. Returns the files that have.
    ///
    /// # Errors
    /// The error of `build`, at the second reload in a row that reads the same contents; once for each contents.
    pub(super) fn reload(
        &self,
        read: impl FnOnce(&T) -> FileContents,
        build: impl FnOnce(&T, &FileContents) -> Result<T, Error>,
    ) -> Result<Vec<PathBuf>, Error> {
        // Before reading: a reload that reads first and activates last could activate contents that are older.
        let mut failure = self.failure.lock();
        let active = self.active.load_full();
        let files = read(&active.value);
        let fingerprints = files.fingerprints();
        let before = failure.take().filter(|failure| failure.fingerprints == fingerprints);
        let changed = fingerprints.differences(&active.fingerprints);
        if changed.is_empty() {
            return Ok(changed);
        }
        match build(&active.value, &files) {
            Ok(value) => {
                self.activate(value, fingerprints);
                Ok(changed)
            }
            Err(error) => {
                let is_due = before.as_ref().is_some_and(|before| !before.is_reported);
                *failure = Some(ReloadFailure { fingerprints, is_reported: before.is_some() });
                if is_due { Err(error) } else { Ok(Vec::new()) }
            }
        }
    }
}
