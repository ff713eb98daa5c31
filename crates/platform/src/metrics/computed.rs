//! Families of metrics that are computed when they are read.

use std::collections::HashMap;

use prometheus::core::{Collector, Desc};
use prometheus::proto::{self, LabelPair, Metric, MetricFamily, MetricType};

/// Reader of the series of a family: the value of the label, if the family has one, and the value of the series.
type Read = Box<dyn Fn() -> Vec<(Option<String>, f64)> + Send + Sync>;

/// Family whose series a function computes at each scrape. The function must not block. A family without series is not
/// shown.
pub(super) struct ComputedFamily {
    desc: Desc,
    kind: MetricType,
    read: Read,
}

impl ComputedFamily {
    /// Gauge with a number that may be unknown: it is not shown then. `label` is its name and its value.
    pub(super) fn gauge(
        name: &str,
        help: &str,
        label: Option<(&str, &str)>,
        read: impl Fn() -> Option<f64> + Send + Sync + 'static,
    ) -> Self {
        let constant = label.map(|(name, value)| (name.to_owned(), value.to_owned()));
        let read = move || read().map(|value| (None, value)).into_iter().collect();
        Self { desc: describe(name, help, &[], constant), kind: MetricType::GAUGE, read: Box::new(read) }
    }

    /// Counter.
    pub(super) fn counter(name: &str, help: &str, read: impl Fn() -> f64 + Send + Sync + 'static) -> Self {
        let read = move || vec![(None, read())];
        Self { desc: describe(name, help, &[], None), kind: MetricType::COUNTER, read: Box::new(read) }
    }

    /// Family with one label, whose values must be bounded.
    pub(super) fn labelled(
        kind: MetricType,
        name: &str,
        help: &str,
        label: &str,
        read: impl Fn() -> Vec<(String, f64)> + Send + Sync + 'static,
    ) -> Self {
        let read = move || read().into_iter().map(|(label, value)| (Some(label), value)).collect();
        Self { desc: describe(name, help, &[label], None), kind, read: Box::new(read) }
    }

    fn metric(&self, label: Option<&str>, value: f64) -> Metric {
        let mut metric = Metric::default();
        let variable = self.desc.variable_labels.iter().zip(label).map(|(name, value)| label_pair(name, value));
        metric.set_label(variable.chain(self.desc.const_label_pairs.iter().cloned()).collect());
        if self.kind == MetricType::COUNTER {
            let mut counter = proto::Counter::default();
            counter.set_value(value);
            metric.set_counter(counter);
        } else {
            let mut gauge = proto::Gauge::default();
            gauge.set_value(value);
            metric.set_gauge(gauge);
        }
        metric
    }
}

impl Collector for ComputedFamily {
    fn desc(&self) -> Vec<&Desc> {
        vec![&self.desc]
    }

    fn collect(&self) -> Vec<MetricFamily> {
        let series = (self.read)().into_iter().map(|(label, value)| self.metric(label.as_deref(), value));
        vec![family(&self.desc, self.kind, series.collect())]
    }
}

/// Description of a family with these labels, and perhaps with one that has the same value in all series.
pub(super) fn describe(name: &str, help: &str, labels: &[&str], constant: Option<(String, String)>) -> Desc {
    let labels = labels.iter().copied().map(str::to_owned).collect();
    let constant: HashMap<String, String> = constant.into_iter().collect();
    Desc::new(name.into(), help.into(), labels, constant).expect("names and labels are constants")
}

/// Family of these series. A registry leaves out one without any.
pub(super) fn family(desc: &Desc, kind: MetricType, series: Vec<Metric>) -> MetricFamily {
    let mut family = MetricFamily::default();
    family.set_name(desc.fq_name.clone());
    family.set_help(desc.help.clone());
    family.set_field_type(kind);
    family.set_metric(series);
    family
}

/// A label of a series.
pub(super) fn label_pair(name: &str, value: &str) -> LabelPair {
    let mut pair = LabelPair::default();
    pair.set_name(name.into());
    pair.set_value(value.into());
    pair
}
