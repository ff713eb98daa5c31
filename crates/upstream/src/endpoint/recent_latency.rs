//! Latency of one endpoint in the last minute.

use std::collections::VecDeque;
use std::time::Duration;

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use domain::clock::Micros;
use platform::metrics::{LatencyCounts, quantile};

/// Moments of the last minute whose counts are kept, from which recent quantiles are read.
const MOMENTS: usize = 6;

/// Quantiles of the latency, in microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs, reason = "named by the part that is not slower")]
pub struct LatencyReport {
    pub p50_us: u64,
    pub p99_us: u64,
}

/// Latency counts of the last minute, kept by the maintenance.
#[derive(Debug, Default)]
pub(crate) struct RecentLatency(Mutex<VecDeque<(Micros, LatencyCounts)>>);

impl RecentLatency {
    /// Keeps the counts, once in ten seconds.
    pub(crate) fn keep(&self, counts: impl FnOnce() -> LatencyCounts, now: Micros) {
        let mut kept = self.0.lock();
        if kept.back().is_some_and(|(time, _)| now < time.after(Duration::from_secs(10))) {
            return;
        }
        if kept.len() == MOMENTS {
            kept.pop_front();
        }
        kept.push_back((now, counts()));
    }

    /// Quantiles since the oldest moment; none without requests.
    pub(crate) fn report(&self, now: &LatencyCounts) -> Option<LatencyReport> {
        let kept = self.0.lock();
        let (_, before) = kept.front()?;
        Some(LatencyReport { p50_us: quantile(before, now, 0.5)?, p99_us: quantile(before, now, 0.99)? })
    }
}
