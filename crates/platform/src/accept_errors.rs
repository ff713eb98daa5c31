//! Log of failed accepts: one line a second of a process, whichever of its listeners fail.
//!
//! Without file descriptors (EMFILE), each listener of each worker fails many times a second, for as long as
//! an attack holds them.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// Time between two lines.
const INTERVAL: Duration = Duration::from_secs(1);

/// Log of failed accepts; clones share it.
#[derive(Clone, Debug, Default)]
pub struct AcceptErrorLog(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    logged: Option<Instant>,
    /// Failures since then.
    failures: u64,
}

impl AcceptErrorLog {
    /// Logs a failed accept, and how many there were since the last line; or counts it for the next one.
    pub fn log(&self, error: &io::Error) {
        if let Some(failures) = self.count(Instant::now()) {
            tracing::warn!(%error, failures, "cannot accept connections; trying again several times a second");
        }
    }

    /// Counts a failure. Returns the number of those since the last line when another one is due.
    fn count(&self, now: Instant) -> Option<u64> {
        let mut state = self.0.lock();
        state.failures += 1;
        if state.logged.is_some_and(|logged| now.saturating_duration_since(logged) < INTERVAL) {
            return None;
        }
        state.logged = Some(now);
        Some(std::mem::take(&mut state.failures))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_of_all_clones_are_one_line_a_second() {
        let log = AcceptErrorLog::default();
        let now = Instant::now();
        let other = log.clone();
        assert_eq!(log.count(now), Some(1));
        assert_eq!((other.count(now), log.count(now + INTERVAL / 2)), (None, None));
        assert_eq!(other.count(now + INTERVAL), Some(3));
        assert_eq!(log.count(now + INTERVAL), None);
    }
}
