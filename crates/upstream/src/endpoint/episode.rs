//! Episode of an overload, for the log: from a first refusal, or failure, to a second without one.
//!
//! An overloaded upstream is full and has room again thousands of times a second: the log has one line for the
//! beginning of an episode and one for its end, whatever comes and goes between them.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::time::Duration;

use domain::clock::Micros;

/// Time without a refusal after which an episode has ended.
const QUIET: Duration = Duration::from_secs(1);

/// Episode, shared by all workers.
#[derive(Debug, Default)]
pub(crate) struct Episode {
    is_open: AtomicBool,
    /// Refusals in the episode.
    count: AtomicU64,
    /// Time of the last one, by the steady clock.
    last: AtomicU64,
}

impl Episode {
    /// Notes a refusal. Returns whether an episode begins with it, which is to be logged.
    pub(crate) fn note(&self, now: Micros) -> bool {
        self.last.fetch_max(now.0, Relaxed);
        self.count.fetch_add(1, Relaxed);
        !self.is_open.load(Relaxed) && !self.is_open.swap(true, Relaxed)
    }

    /// Ends the episode when the last refusal is long enough ago. Returns the number of refusals, which is to be
    /// logged.
    pub(crate) fn end_if_quiet(&self, now: Micros) -> Option<u64> {
        if !self.is_open.load(Relaxed) || now < Micros(self.last.load(Relaxed)).after(QUIET) {
            return None;
        }
        self.is_open.swap(false, Relaxed).then(|| self.count.swap(0, Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn episode_begins_once_and_ends_after_a_second_without_refusals() {
        let episode = Episode::default();
        let start = Micros(1_000_000);
        let at = |milliseconds| start.after(Duration::from_millis(milliseconds));
        assert_eq!(episode.end_if_quiet(at(0)), None);
        let begun: Vec<_> = (0..50).map(|number| episode.note(at(900 * number))).collect();
        assert_eq!(begun.iter().filter(|begun| **begun).count(), 1);
        assert!(begun[0]);
        assert_eq!(episode.end_if_quiet(at(900 * 49 + 999)), None);
        assert_eq!(episode.end_if_quiet(at(900 * 49 + 1000)), Some(50));
        assert_eq!(episode.end_if_quiet(at(900 * 49 + 2000)), None);
        assert!(episode.note(at(900 * 49 + 3000)), "the next episode");
        assert_eq!(episode.end_if_quiet(at(900 * 49 + 4000)), Some(1));
    }
}
