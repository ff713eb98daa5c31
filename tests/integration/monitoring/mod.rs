//! Metrics, alerts and dashboard, as a Prometheus that scrapes a gateway sees them.

mod alerts;
mod conventions;
mod dashboard;
mod metrics_page;
mod prometheus;
mod redis_replicas;
mod state_faults;
