//! Checkpoint schedule: when the usage of keys is written back to the state file.
//!
//! - While a journal has every use, a checkpoint is rare: what lies between two of them is replayed from the journal.
//! - A segment of the journal can be removed once it is closed. Therefore a closed segment makes a checkpoint due.
//! - A use that the journal could not record makes a checkpoint due. While there is no journal, or it cannot be
//!   written, usage is written back each second.

use std::time::{Duration, Instant};

/// Longest time between two checkpoints.
const INTERVAL: Duration = Duration::from_secs(300);
/// Lines of the journal between two checkpoints at most: 250,000 uses and their outcomes, which a start replays in less
/// than a second.
const LINES: u64 = 500_000;

/// Progress of the journal that the uses can be replayed from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JournalProgress {
    /// Number of the segment that is written.
    pub segment: u64,
    /// Number of the next line, over all segments.
    pub lines: u64,
    /// Number of decided uses that the journal does not have.
    pub lost: u64,
}

/// Reads the progress of the journal; none while the journal does not have every use.
pub(super) type ProgressProbe = Box<dyn Fn() -> Option<JournalProgress> + Send>;

/// Schedule of checkpoints.
pub(super) struct CheckpointSchedule {
    probe: ProgressProbe,
    /// Time of the last checkpoint, and the progress of the journal then.
    last: Option<(Instant, JournalProgress)>,
}

impl CheckpointSchedule {
    /// The first checkpoint is due at once: it has the uses that were replayed.
    pub(super) fn new(probe: ProgressProbe) -> Self {
        Self { probe, last: None }
    }

    /// The number of the journal's next line; `None` while the journal does not have every use.
    pub(super) fn journal_line(&self) -> Option<u64> {
        (self.probe)().map(|progress| progress.lines)
    }

    /// Returns true when a checkpoint is due, and takes it for begun.
    ///
    /// The uses that it has to have are those that were counted when this returns: a use is counted before it is in the
    /// journal.
    pub(super) fn begin_if_due(&mut self, now: Instant) -> bool {
        let progress = (self.probe)();
        let is_due = match (self.last, progress) {
            (Some((last, before)), Some(progress)) => {
                (progress.segment, progress.lost) != (before.segment, before.lost)
                    || progress.lines.saturating_sub(before.lines) >= LINES
                    || now.saturating_duration_since(last) >= INTERVAL
            }
            _ => true,
        };
        if is_due {
            self.last = progress.map(|progress| (now, progress));
        }
        is_due
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;

    #[test]
    fn checkpoint_is_due_after_a_segment_many_lines_or_a_long_time() {
        let progress = Arc::new(Mutex::new(None));
        let probe = Arc::clone(&progress);
        let mut schedule = CheckpointSchedule::new(Box::new(move || *probe.lock().unwrap()));
        let start = Instant::now();
        let mut is_due = |segment, lines, secs| {
            *progress.lock().unwrap() = Some(JournalProgress { segment, lines, lost: 0 });
            schedule.begin_if_due(start + Duration::from_secs(secs))
        };
        assert!(is_due(1, 10, 0), "the first one");
        assert!(!is_due(1, LINES + 9, 1));
        assert!(is_due(1, LINES + 10, 2), "many lines");
        assert!(!is_due(1, LINES + 11, 3));
        assert!(is_due(2, LINES + 12, 4), "a closed segment");
        assert!(!is_due(2, LINES + 12, 303));
        assert!(is_due(2, LINES + 12, 304), "a long time");
        assert!(!is_due(2, LINES + 12, 305));
    }

    #[test]
    fn checkpoint_is_always_due_while_the_journal_lacks_uses() {
        let progress = Arc::new(Mutex::new(None));
        let probe = Arc::clone(&progress);
        let mut schedule = CheckpointSchedule::new(Box::new(move || *probe.lock().unwrap()));
        let now = Instant::now();
        assert!(schedule.begin_if_due(now) && schedule.begin_if_due(now));
        *progress.lock().unwrap() = Some(JournalProgress { segment: 1, lines: 1, lost: 1 });
        assert!(schedule.begin_if_due(now), "what the journal lacks is not written back yet");
        assert!(!schedule.begin_if_due(now));
        *progress.lock().unwrap() = Some(JournalProgress { segment: 1, lines: 1, lost: 2 });
        assert!(schedule.begin_if_due(now) && !schedule.begin_if_due(now), "the journal lacks one more");
        *progress.lock().unwrap() = None;
        assert!(schedule.begin_if_due(now));
    }
}
