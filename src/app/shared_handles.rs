//! Handles on the process-wide services that stay the same when the configuration changes.

use std::sync::Arc;

use super::certificates::Certificates;
use crate::gateway::{ProcessEnd, UsageReads};
use control::api::Api;
use control::dashboard;
use control::federation::TokenExchange;
use control::leaks::LeakReports;
use domain::problem::ProblemTypes;
use edge::transport::ConnectionLimiter;
use journal::audit::Journal;
use journal::shipping::Shippers;
use platform::metrics::Metrics;
use state::State;

/// Handles on the process-wide services. Clones refer to the same services.
///
/// All workers and the reloader hold them; no reload replaces them.
#[derive(Clone)]
pub(super) struct SharedHandles {
    /// The state. A worker replaces it by its thread's own view of it ([`State::for_thread`]).
    pub(super) state: Arc<State>,
    pub(super) journal: Journal,
    /// Ships the journal to sinks.
    pub(super) shippers: Arc<Shippers>,
    pub(super) metrics: Metrics,
    /// Connection limits, in total and per address.
    pub(super) connection_limiter: ConnectionLimiter,
    pub(super) certificates: Arc<Certificates>,
    /// The part of the dashboard that all workers share; none without a `session` block.
    pub(super) dashboard: Option<dashboard::DashboardServices>,
    /// The part of the management API that all workers share; none without a listener for it.
    pub(super) management_api: Option<Api>,
    /// The part of token exchange that all workers share; none without a `federation` block.
    pub(super) federation: Option<TokenExchange>,
    /// The part of reports of leaks that all workers share; none without a `leaks` block.
    pub(super) leaks: Option<LeakReports>,
    /// Stage of the process on the way to its end, for other proxies.
    pub(super) process_end: ProcessEnd,
    /// Turns to read the usage of callers.
    pub(super) usage_reads: UsageReads,
    /// Types of the problems that requests are answered with.
    pub(super) problem_types: ProblemTypes,
}
