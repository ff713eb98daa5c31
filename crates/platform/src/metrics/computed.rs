//! Gauges that are computed when they are read.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use prometheus::core::{Collector, Desc};
use prometheus::proto;

/// Gauge whose value a function computes at each scrape. The function must not block.
#[derive(Clone)]
pub(super) struct ComputedGauge {
    desc: Desc,
    read: Arc<dyn Fn() -> Option<f64> + Send + Sync>,
}

impl ComputedGauge {
    /// Gauge with a number that may be unknown: it is not shown then. `label` is its name and its value.
    pub(super) fn new(
        name: &str,
        help: &str,
        label: Option<(&str, &str)>,
        read: impl Fn() -> Option<f64> + Send + Sync + 'static,
    ) -> Self {
        let label = label.map(|(name, value)| (name.to_owned(), value.to_owned()));
        let labels: HashMap<String, String> = label.into_iter().collect();
        let desc = Desc::new(name.into(), help.into(), Vec::new(), labels);
        Self { desc: desc.expect("names and labels are constants"), read: Arc::new(read) }
    }
}

impl fmt::Debug for ComputedGauge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ComputedGauge").field("desc", &self.desc).finish_non_exhaustive()
    }
}

impl Collector for ComputedGauge {
    fn desc(&self) -> Vec<&Desc> {
        vec![&self.desc]
    }

    fn collect(&self) -> Vec<proto::MetricFamily> {
        let Some(value) = (self.read)() else { return Vec::new() };
        let mut gauge = proto::Gauge::default();
        gauge.set_value(value);
        let mut metric = proto::Metric::default();
        metric.set_gauge(gauge);
        metric.set_label(self.desc.const_label_pairs.clone());
        let mut family = proto::MetricFamily::default();
        family.set_name(self.desc.fq_name.clone());
        family.set_help(self.desc.help.clone());
        family.set_field_type(proto::MetricType::GAUGE);
        family.set_metric(vec![metric]);
        vec![family]
    }
}

/// Family of gauges whose labels and values a function computes at each scrape. The function must not block.
#[derive(Clone)]
pub(super) struct ComputedFamily {
    desc: Desc,
    read: Arc<dyn Fn() -> Vec<(String, f64)> + Send + Sync>,
}

impl ComputedFamily {
    /// Family with one label, whose values must be bounded.
    pub(super) fn new(
        name: &str,
        help: &str,
        label: &str,
        read: impl Fn() -> Vec<(String, f64)> + Send + Sync + 'static,
    ) -> Self {
        let desc = Desc::new(name.into(), help.into(), vec![label.to_owned()], HashMap::new());
        Self { desc: desc.expect("names and labels are constants"), read: Arc::new(read) }
    }

    fn gauge(&self, label: String, value: f64) -> proto::Metric {
        let mut gauge = proto::Gauge::default();
        gauge.set_value(value);
        let mut pair = proto::LabelPair::default();
        pair.set_name(self.desc.variable_labels[0].clone());
        pair.set_value(label);
        let mut metric = proto::Metric::default();
        metric.set_gauge(gauge);
        metric.set_label(vec![pair]);
        metric
    }
}

impl fmt::Debug for ComputedFamily {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ComputedFamily").field("desc", &self.desc).finish_non_exhaustive()
    }
}

impl Collector for ComputedFamily {
    fn desc(&self) -> Vec<&Desc> {
        vec![&self.desc]
    }

    fn collect(&self) -> Vec<proto::MetricFamily> {
        let metrics: Vec<_> = (self.read)().into_iter().map(|(label, value)| self.gauge(label, value)).collect();
        if metrics.is_empty() {
            return Vec::new();
        }
        let mut family = proto::MetricFamily::default();
        family.set_name(self.desc.fq_name.clone());
        family.set_help(self.desc.help.clone());
        family.set_field_type(proto::MetricType::GAUGE);
        family.set_metric(metrics);
        vec![family]
    }
}
