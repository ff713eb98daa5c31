//! Latency of one endpoint: counts by buckets that grow by a quarter, from which quantiles and a Prometheus histogram
//! are read. Counting takes two additions.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use parking_lot::Mutex;
use prometheus::core::{Collector, Desc};
use prometheus::proto;

use super::computed::{describe, family, label_pair};

/// Buckets: four for each doubling, up to some hours in microseconds.
const BUCKETS: usize = 140;
/// Bits of the bounds that Prometheus sees, in microseconds: each doubling from 128 µs to 67 s.
const SHOWN_BITS: std::ops::RangeInclusive<u32> = 7..=26;

/// Labels, in alphabetical order, as Prometheus has them.
const LABELS: [&str; 2] = ["endpoint", "upstream"];

/// Counts of the buckets at one moment.
pub type LatencyCounts = Box<[u64; BUCKETS]>;

/// Latencies of one endpoint.
#[derive(Debug)]
pub struct Latency {
    buckets: [AtomicU64; BUCKETS],
    sum_micros: AtomicU64,
}

impl Default for Latency {
    fn default() -> Self {
        Self { buckets: std::array::from_fn(|_| AtomicU64::new(0)), sum_micros: AtomicU64::new(0) }
    }
}

impl Latency {
    /// Counts one latency.
    pub fn observe(&self, micros: u64) {
        self.buckets[bucket(micros)].fetch_add(1, Relaxed);
        self.sum_micros.fetch_add(micros, Relaxed);
    }

    /// The counts since the start.
    pub fn counts(&self) -> LatencyCounts {
        Box::new(std::array::from_fn(|index| self.buckets[index].load(Relaxed)))
    }
}

/// Latency in microseconds that this part (0 to 1) of those between two moments did not exceed, a quarter too high at
/// most. None without any.
pub fn quantile(before: &LatencyCounts, now: &LatencyCounts, part: f64) -> Option<u64> {
    let counts = || now.iter().zip(before.iter()).map(|(now, before)| now.saturating_sub(*before));
    let total: u64 = counts().sum();
    #[allow(clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a rank")]
    let rank = ((total as f64 * part).ceil() as u64).max(1);
    let mut passed = 0;
    let index = counts().position(|count| {
        passed += count;
        passed >= rank
    })?;
    Some(bound(index))
}

/// Bucket of a latency: the position of its highest bit, and the two bits behind it.
#[allow(clippy::cast_possible_truncation, reason = "a bucket")]
fn bucket(micros: u64) -> usize {
    if micros < 4 {
        return micros as usize;
    }
    let highest = 63 - micros.leading_zeros();
    let behind = (micros >> (highest - 2)) & 3;
    ((highest - 1) as usize * 4 + behind as usize).min(BUCKETS - 1)
}

/// First latency beyond a bucket.
fn bound(index: usize) -> u64 {
    let highest = index / 4 + 1;
    let behind = index as u64 % 4;
    if index < 4 { index as u64 + 1 } else { (5 + behind) << (highest - 2) }
}

/// `upstream_latency_seconds{upstream,endpoint}`: the histograms of all endpoints.
#[derive(Clone, Debug)]
pub(super) struct LatencyCollector {
    desc: Desc,
    /// By the names of upstream and endpoint. The holders of the lock only insert, remove and read.
    endpoints: Arc<Mutex<ByEndpoint>>,
}

type ByEndpoint = BTreeMap<(String, String), Arc<Latency>>;

impl LatencyCollector {
    pub(super) fn new() -> Self {
        let help = "Time from the sending of a request to the head of its response";
        Self { desc: describe("upstream_latency_seconds", help, &LABELS, None), endpoints: Arc::default() }
    }

    /// The latencies of an endpoint.
    pub(super) fn endpoint(&self, upstream: &str, endpoint: &str) -> Arc<Latency> {
        Arc::clone(self.endpoints.lock().entry((upstream.to_owned(), endpoint.to_owned())).or_default())
    }

    pub(super) fn remove(&self, upstream: &str, endpoint: &str) {
        self.endpoints.lock().remove(&(upstream.to_owned(), endpoint.to_owned()));
    }
}

impl Collector for LatencyCollector {
    fn desc(&self) -> Vec<&Desc> {
        vec![&self.desc]
    }

    fn collect(&self) -> Vec<proto::MetricFamily> {
        let series = self.endpoints.lock().iter().map(|(names, latency)| metric(names, latency)).collect();
        vec![family(&self.desc, proto::MetricType::HISTOGRAM, series)]
    }
}

#[allow(clippy::cast_precision_loss, reason = "seconds")]
fn metric((upstream, endpoint): &(String, String), latency: &Latency) -> proto::Metric {
    let counts = latency.counts();
    let mut histogram = proto::Histogram::default();
    histogram.set_sample_count(counts.iter().sum());
    histogram.set_sample_sum(latency.sum_micros.load(Relaxed) as f64 / 1e6);
    let buckets = SHOWN_BITS.map(|bits| {
        let mut shown = proto::Bucket::default();
        shown.set_cumulative_count(counts[..bucket(1 << bits)].iter().sum());
        shown.set_upper_bound((1_u64 << bits) as f64 / 1e6);
        shown
    });
    histogram.set_bucket(buckets.collect());
    let mut metric = proto::Metric::default();
    let labels = LABELS.into_iter().zip([endpoint, upstream]);
    metric.set_label(labels.map(|(name, value)| label_pair(name, value)).collect());
    metric.set_histogram(histogram);
    metric
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_are_in_order_and_end_at_their_bounds() {
        for index in 0..BUCKETS - 1 {
            let bound = bound(index);
            assert_eq!((bucket(bound - 1), bucket(bound)), (index, index + 1), "{bound}");
        }
        assert_eq!(bucket(u64::MAX), BUCKETS - 1);
    }

    #[test]
    fn quantiles_are_those_between_two_moments() {
        let latency = Latency::default();
        (0..1000).for_each(|_| latency.observe(5));
        let before = latency.counts();
        assert_eq!(quantile(&before, &before, 0.5), None);
        (1..=100).for_each(|milliseconds| latency.observe(milliseconds * 1000));
        let half = quantile(&before, &latency.counts(), 0.5);
        let most = quantile(&before, &latency.counts(), 0.99);
        assert!((50_000..=62_500).contains(&half.unwrap()), "{half:?}");
        assert!((99_000..=124_000).contains(&most.unwrap()), "{most:?}");
    }
}
