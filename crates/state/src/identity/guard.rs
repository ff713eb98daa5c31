//! Guard of a state: what all threads of a process know of its continuity.
//!
//! - Decisions look at one atomic ([`IdentityGuard::is_broken`]); everything else is rare.
//! - A transition is logged once: lost, older, restored, behind.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::{Continuity, ContinuityTracker, Discontinuity, MEMORY_FILE, Memory, StateIdentity};

/// Continuity of one state, shared by all threads of a process.
#[derive(Debug)]
pub struct IdentityGuard {
    /// True while nothing may be served: read by every decision.
    is_broken: AtomicBool,
    /// Failovers after the last of which the state was read; read by every decision on Redis.
    failovers: AtomicU64,
    inner: Mutex<Inner>,
}

#[derive(Debug)]
struct Inner {
    tracker: ContinuityTracker,
    /// The last reading; none before the first one.
    found: Option<Option<StateIdentity>>,
    /// Reason while nothing may be served.
    broken: Option<Discontinuity>,
    /// File in which this is remembered; none for a process that keeps none.
    file: Option<PathBuf>,
    /// Content of that file.
    saved: Option<Memory>,
    /// True once it could not be written: one line of the log until it can.
    has_failed: bool,
}

impl IdentityGuard {
    /// Knows nothing yet. A failover may lose the changes of the last `max_loss`.
    pub fn new(max_loss: Duration) -> Self {
        let tracker = ContinuityTracker::new(max_loss);
        let inner = Inner { tracker, found: None, broken: None, file: None, saved: None, has_failed: false };
        Self { is_broken: AtomicBool::new(false), failovers: AtomicU64::new(0), inner: Mutex::new(inner) }
    }

    /// Returns whether the state may be served, and was read since the last of so many failovers.
    pub fn is_verified(&self, failovers: &AtomicU64) -> bool {
        !self.is_broken() && self.failovers.load(Ordering::Acquire) == failovers.load(Ordering::Acquire)
    }

    /// Returns whether nothing may be served now.
    pub fn is_broken(&self) -> bool {
        self.is_broken.load(Ordering::Relaxed)
    }

    /// The reason why nothing may be served; none while the state is the true one.
    pub fn discontinuity(&self) -> Option<Discontinuity> {
        if self.is_broken() { self.inner.lock().broken.clone() } else { None }
    }

    /// Remembers in a directory from now on, and compares what was found so far with what is remembered there.
    pub fn remember_in(&self, directory: &Path) {
        let file = directory.join(MEMORY_FILE);
        let saved = Memory::load(&file);
        let mut inner = self.inner.lock();
        (inner.saved, inner.file) = (saved.clone(), Some(file));
        drop(inner);
        saved.into_iter().for_each(|memory| self.remember(memory));
    }

    /// Remembers what an earlier process has remembered, and compares what was found so far with it.
    pub fn remember(&self, memory: Memory) {
        let mut inner = self.inner.lock();
        inner.tracker.remember(memory);
        if let Some(found) = inner.found.clone() {
            self.compare(&mut inner, found, Instant::now());
        }
    }

    /// The memory, if there is one.
    pub fn memory(&self) -> Option<Memory> {
        self.inner.lock().tracker.memory().cloned()
    }

    /// The last reading of the state's identity; none before the first one, and of a state without one.
    pub fn found(&self) -> Option<StateIdentity> {
        self.inner.lock().found.clone().flatten()
    }

    /// Compares a reading with what is remembered.
    pub fn observe(&self, found: Option<StateIdentity>, now: Instant) -> Continuity {
        self.compare(&mut self.inner.lock(), found, now)
    }

    /// The same for a reading that began after so many failovers. With `is_missed` another gateway misses its state
    /// here: only an empty state that none misses is a new one.
    pub fn observe_after(
        &self,
        failovers: u64,
        found: Option<StateIdentity>,
        is_missed: bool,
        now: Instant,
    ) -> Continuity {
        let mut inner = self.inner.lock();
        if is_missed && found.is_none() && inner.tracker.memory().is_none() {
            self.set_broken(&mut inner, Some(Discontinuity::Absent));
            return Continuity::Broken(Discontinuity::Absent);
        }
        let continuity = self.compare(&mut inner, found, now);
        self.failovers.fetch_max(failovers, Ordering::AcqRel);
        continuity
    }

    fn compare(&self, inner: &mut Inner, found: Option<StateIdentity>, now: Instant) -> Continuity {
        let continuity = inner.tracker.observe(found.as_ref(), now);
        inner.found = Some(found);
        if let Continuity::Behind { lost } = continuity {
            tracing::warn!(
                lost,
                "the state has lost its last changes by management, as a failover may; this gateway writes the \
                 revocations that it knows again"
            );
        }
        let broken = match &continuity {
            Continuity::Broken(reason) => Some(reason.clone()),
            Continuity::Fresh | Continuity::Same | Continuity::Behind { .. } => None,
        };
        self.set_broken(inner, broken);
        continuity
    }

    /// Notes that the state has at least so many changes: this process has made the last one.
    pub fn note_changes(&self, changes: u64, now: Instant) {
        self.inner.lock().tracker.note_changes(changes, now);
    }

    /// Notes that the file of the state was removed or replaced, or that it is back.
    pub fn set_file_replaced(&self, is_replaced: bool) {
        let mut inner = self.inner.lock();
        if is_replaced {
            self.set_broken(&mut inner, Some(Discontinuity::FileReplaced));
        } else if inner.broken == Some(Discontinuity::FileReplaced) {
            let found = inner.found.clone().flatten();
            self.compare(&mut inner, found, Instant::now());
        }
    }

    fn set_broken(&self, inner: &mut Inner, broken: Option<Discontinuity>) {
        if inner.broken == broken {
            return;
        }
        match &broken {
            Some(reason) => tracing::error!(
                reason = reason.reason(),
                "this is not the state that was served: {reason}; no request is admitted and no change is made: \
                 restore the state, or run `keygate state accept` if this one is right"
            ),
            None => tracing::warn!("the state is the one that was served: requests are admitted again"),
        }
        self.is_broken.store(broken.is_some(), Ordering::Relaxed);
        inner.broken = broken;
    }

    /// Writes what is remembered to its file, if it has changed.
    pub fn save(&self) {
        let mut inner = self.inner.lock();
        let (Some(file), Some(memory)) = (&inner.file, inner.tracker.memory()) else { return };
        if inner.saved.as_ref() == Some(memory) || inner.broken.is_some() {
            return;
        }
        match memory.save(file) {
            Ok(()) => {
                inner.saved = Some(memory.clone());
                inner.has_failed = false;
            }
            Err(error) if !inner.has_failed => {
                tracing::warn!(%error, path = %file.display(),
                    "cannot note which state is served: a start may take another one for it; trying again");
                inner.has_failed = true;
            }
            Err(error) => tracing::debug!(%error, "cannot note which state is served"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_outlasts_the_process_and_refuses_another_state() {
        let directory = tempfile::tempdir().unwrap();
        let served = StateIdentity::generate().unwrap();
        let first = IdentityGuard::new(Duration::ZERO);
        first.remember_in(directory.path());
        assert_eq!(first.observe(Some(served.clone()), Instant::now()), Continuity::Same);
        first.save();

        let second = IdentityGuard::new(Duration::ZERO);
        second.observe(Some(StateIdentity::generate().unwrap()), Instant::now());
        assert!(!second.is_broken(), "nothing is remembered yet");
        second.remember_in(directory.path());
        assert!(matches!(second.discontinuity(), Some(Discontinuity::Other(_))));
        second.save();
        second.observe(Some(served), Instant::now());
        assert!(!second.is_broken());
    }

    #[test]
    fn replaced_file_is_refused_until_it_is_back() {
        let guard = IdentityGuard::new(Duration::ZERO);
        guard.observe(Some(StateIdentity::generate().unwrap()), Instant::now());
        guard.set_file_replaced(true);
        assert_eq!(guard.discontinuity(), Some(Discontinuity::FileReplaced));
        guard.set_file_replaced(false);
        assert!(!guard.is_broken());
    }
}
