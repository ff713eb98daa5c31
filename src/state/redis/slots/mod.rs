//! The lease of this gateway on the slots of an organization.

pub(super) mod lease;
pub(super) mod slot_report;
pub(super) mod active_leases;
pub(super) mod heartbeat;
