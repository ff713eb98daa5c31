//! Metrics, alerts and dashboard, as a Prometheus that scrapes a gateway sees them.

mod alerts;
mod dashboard;
mod metrics_page;
mod prometheus;
