//! Parts of the state that decide without I/O, for `benches/fleet`, which simulates many gateways with them. They are no
//! interface: any change may break it.

pub use super::client::Replication;
pub use super::decide::{CachedUsage, ExactShare, LateAnswer, Taken, UnreportedUses};
pub use super::record_names::{RecordNames, gateways_slot, org_slot, revocations_slot};
pub use super::revocations::{Kept, KeptRevocations, Revocation, Write};
pub use super::slots::{
    ActiveSet, EARLY_REPORT, HeartbeatAction, HeartbeatRound, Membership, PendingReport, Portion, Resync, SlotLease,
    TICK, VisitedLease, retry_interval,
};
