//! Active checks: one task of the process asks each endpoint at intervals whether it is well, whatever requests see.
//!
//! - A check has a connection of its own, by the protocol and the TLS of the upstream: a GET whose status is expected,
//!   or the gRPC health protocol (`grpc.health.v1.Health/Check`).
//! - An endpoint is set aside after `unhealthy` failed checks in a row, and returns after `healthy` passed ones, with
//!   the slow start. Before its first check it takes requests.
//! - The intervals are jittered by a tenth, so that gateways do not check together, and at most 32 checks are under
//!   way.

mod settings;
mod state;
mod exchange;

pub(crate) use exchange::check;
#[cfg(test)]
pub(crate) use settings::tests::every_second;
pub use settings::{HealthKind, HealthSettings};
pub(crate) use state::Check;
pub use state::CheckReport;
