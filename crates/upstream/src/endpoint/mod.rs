//! Endpoints: who may get a request. Their state, which all workers share, the selection of one of them, and what sets
//! them aside: the circuit breaker, outlier ejection, active health checks, pauses that they ask for; and their
//! discovery.

pub(super) mod failure;
mod episode;
pub(super) mod balance;
pub(super) mod health;
pub(super) mod recent_latency;
pub(super) mod outlier;
pub(super) mod pause;
pub(super) mod retry_budget;
pub(super) mod circuit;
pub(super) mod discovery;
pub(super) mod observed_try;
pub(super) mod endpoints;
pub(super) mod endpoint_set;
pub(super) mod selection;
mod ejection;
pub(super) mod record;
pub(super) mod maintenance;
pub(super) mod report;
