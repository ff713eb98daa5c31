//! Guard of a state: what all threads of a process know of its continuity.
//!
//! - Decisions look at one atomic ([`IdentityGuard::is_broken`]); everything else is rare.
//! - Readings are answered in any order: one that was begun before another one that was compared, or before a change
//!   that this process has made, says nothing.
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

/// A reading of the identity that was begun.
#[derive(Clone, Copy, Debug)]
pub struct Reading {
    number: u64,
    /// Failovers before it.
    failovers: u64,
}

#[derive(Debug)]
struct Inner {
    tracker: ContinuityTracker,
    /// Number of the reading that was begun last.
    begun: u64,
    /// Number of the newest reading that was compared. What this process has changed counts as one.
    compared: u64,
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
        let inner = Inner {
            tracker,
            begun: 0,
            compared: 0,
            found: None,
            broken: None,
            file: None,
            saved: None,
            has_failed: false,
        };
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

    /// Compares what the state has now with what is remembered: read or written by the only one that reads it, or
    /// accepted by this process.
    pub fn observe(&self, found: Option<StateIdentity>, now: Instant) -> Continuity {
        let mut inner = self.inner.lock();
        inner.supersede_readings();
        self.compare(&mut inner, found, now)
    }

    /// Begins a reading, after so many failovers.
    pub fn begin_reading(&self, failovers: u64) -> Reading {
        let mut inner = self.inner.lock();
        inner.begun += 1;
        Reading { number: inner.begun, failovers }
    }

    /// Compares what a reading has found with what is remembered; one that is superseded changes nothing. With
    /// `is_missed` another gateway misses its state here: only an empty state that none misses is a new one.
    /// `None` when the state is to be read again: what has superseded the reading may be from before a failover.
    pub fn complete_reading(
        &self,
        reading: Reading,
        found: Option<StateIdentity>,
        is_missed: bool,
        now: Instant,
    ) -> Option<Continuity> {
        let Reading { number, failovers } = reading;
        let mut inner = self.inner.lock();
        if number < inner.compared {
            return (failovers <= self.failovers.load(Ordering::Acquire)).then(|| inner.continuity());
        }
        inner.compared = number;
        if is_missed && found.is_none() && inner.tracker.memory().is_none() {
            self.set_broken(&mut inner, Some(Discontinuity::Absent));
            return Some(Continuity::Broken(Discontinuity::Absent));
        }
        let continuity = self.compare(&mut inner, found, now);
        self.failovers.fetch_max(failovers, Ordering::AcqRel);
        Some(continuity)
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
        let mut inner = self.inner.lock();
        inner.supersede_readings();
        inner.tracker.note_changes(changes, now);
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

impl Inner {
    /// Supersedes the readings that were begun so far.
    fn supersede_readings(&mut self) {
        self.begun += 1;
        self.compared = self.begun;
    }

    /// The continuity of what was compared last.
    fn continuity(&self) -> Continuity {
        match &self.broken {
            Some(reason) => Continuity::Broken(reason.clone()),
            None if self.tracker.memory().is_none() => Continuity::Fresh,
            None => Continuity::Same,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn superseded_reading_changes_nothing() {
        let (now, guard) = (Instant::now(), IdentityGuard::new(Duration::ZERO));
        let made = StateIdentity::generate().unwrap();
        let [early, late, last, after_failover] = [0, 0, 0, 1].map(|failovers| guard.begin_reading(failovers));
        // The identity was made after the early reading, which found none, was answered.
        assert_eq!(guard.complete_reading(late, Some(made.clone()), false, now), Some(Continuity::Same));
        assert_eq!(guard.complete_reading(early, None, false, now), Some(Continuity::Same));
        assert_eq!(guard.complete_reading(early, None, true, now), Some(Continuity::Same));
        // A change of this process was counted after the last reading was answered, perhaps before the failover.
        guard.note_changes(made.changes + 1, now);
        assert_eq!(guard.complete_reading(last, Some(made.clone()), false, now), Some(Continuity::Same));
        assert_eq!(guard.complete_reading(after_failover, None, false, now), None, "to be read again");
        assert!(!guard.is_broken());
        assert_eq!(guard.memory().unwrap().changes, made.changes + 1);
        let next = guard.begin_reading(1);
        assert!(matches!(guard.complete_reading(next, Some(made), false, now), Some(Continuity::Broken(_))));
    }

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
