//! State of an endpoint's active checks.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use super::settings::HealthSettings;
use domain::clock::{self, Micros};

/// Result of an active check.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckReport {
    /// Time of the result.
    #[serde(with = "clock::rfc3339")]
    pub time: Micros,
    /// True if the check passed.
    pub ok: bool,
    /// Status, or error.
    pub detail: String,
}

/// Checks of one endpoint. Only the maintenance writes.
#[derive(Debug, Default)]
pub(crate) struct Check {
    /// Time of the next check.
    next: AtomicU64,
    is_running: AtomicBool,
    /// Results in a row that speak against the present state.
    row: AtomicU32,
    last: Mutex<Option<CheckReport>>,
}

impl Check {
    /// Takes a check that is due; the next one is due an interval later. `chance` is from 0 to 1.
    pub(crate) fn take(&self, interval: Duration, chance: f64, now: Micros) -> bool {
        if now.0 < self.next.load(Relaxed) || self.is_running.swap(true, Relaxed) {
            return false;
        }
        self.next.store(now.after(interval.mul_f64(0.9 + 0.2 * chance)).0, Relaxed);
        true
    }

    /// Keeps a result. Returns whether the endpoint fails its checks from now on, when that changes.
    pub(crate) fn end(&self, report: CheckReport, fails: bool, settings: &HealthSettings) -> Option<bool> {
        self.is_running.store(false, Relaxed);
        let (row, changed) = next_row(self.row.load(Relaxed), fails, report.ok, settings);
        self.row.store(row, Relaxed);
        *self.last.lock() = Some(report);
        changed
    }

    /// Forgets all results: no checks are configured any more.
    pub(crate) fn reset(&self) {
        self.row.store(0, Relaxed);
        *self.last.lock() = None;
    }

    /// The last result.
    pub(crate) fn last(&self) -> Option<CheckReport> {
        self.last.lock().clone()
    }
}

/// Results in a row that speak against the state `fails`, after one more; and the new state, when there are enough.
fn next_row(row: u32, fails: bool, ok: bool, settings: &HealthSettings) -> (u32, Option<bool>) {
    if ok != fails {
        return (0, None);
    }
    let needed = if fails { settings.healthy } else { settings.unhealthy };
    if row + 1 < needed { (row + 1, None) } else { (0, Some(!fails)) }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::HealthKind;

    fn settings(healthy: u32, unhealthy: u32) -> HealthSettings {
        let interval = Duration::from_secs(10);
        let timeout = Duration::from_secs(1);
        HealthSettings {
            kind: HealthKind::Grpc { service: String::new() },
            interval,
            timeout,
            healthy,
            unhealthy,
            required: false,
            host: None,
        }
    }

    proptest! {
        /// The state changes exactly when the last results, as many as are needed, all speak against it.
        #[test]
        fn state_follows_the_last_results(
            results in prop::collection::vec(any::<bool>(), 0..60),
            healthy in 1..4_u32,
            unhealthy in 1..4_u32,
        ) {
            let settings = settings(healthy, unhealthy);
            let check = Check::default();
            let mut fails = false;
            let mut since = 0;
            for number in 0..results.len() {
                let report = CheckReport { time: Micros(0), ok: results[number], detail: String::new() };
                let changed = check.end(report, fails, &settings);
                let needed = if fails { healthy } else { unhealthy } as usize;
                let row = results[since..=number].iter().rev().take_while(|ok| **ok == fails).count();
                prop_assert_eq!(changed.is_some(), row >= needed);
                if let Some(changed) = changed {
                    (fails, since) = (changed, number + 1);
                }
            }
        }
    }

    #[test]
    fn check_is_due_once_in_an_interval_and_never_beside_another() {
        let check = Check::default();
        let interval = Duration::from_secs(10);
        assert!(check.take(interval, 0.5, Micros(1)));
        assert!(!check.take(interval, 0.5, Micros(20_000_000)), "it is under way");
        check.end(CheckReport { time: Micros(1), ok: true, detail: String::new() }, false, &settings(1, 1));
        assert!(!check.take(interval, 0.5, Micros(10_000_000)));
        assert!(check.take(interval, 0.5, Micros(10_000_001)));
    }
}
