//! The slot lease: this gateway's share of the concurrency limit of an organization, or of a key with its own limit.
//!
//! An organization's record in Redis, and a record beside that of such a key, has one entry for each gateway that holds
//! slots: the number of slots, the time of the last report, the lease time, and the *generation* of the entry. A
//! gateway that reports nothing for its lease time loses the entry, and its slots are free again: this is how slots are
//! given back when a gateway dies. When no gateway could report, because the server was away or its clock stepped
//! forward, all entries begin anew, once, and once more if it is away again before half a lease is over
//! (`scripts/slot_leases.lua`). The heartbeats of all gateways to the server say so (`sign_of_life`).
//!
//! In this process, [`SlotLease`] counts the permits of one organization or key. Commands carry its changes to Redis: a
//! decision may acquire one slot and reports releases; the heartbeat reports releases and renews the lease.
//!
//! # States and events
//!
//! `held` is the number of permits, `released` the permits given back and not yet reported, `generation` the one of the
//! entry. Generations are the fencing against replies of before a failover, and against a primary that goes on beside
//! its successor (split brain): *fenced* means that Redis ignores a report, or the gateway a reply, because its
//! generation is not the current one.
//!
//! | event | `Unregistered`: no entry, nothing held | `Registered`: Redis counts what is held | `InDoubt`: Redis may count something else |
//! |---|---|---|---|
//! | a command begins | it may create the entry | it carries `released`, which becomes 0 | none begins: resync first |
//! | `acquired` | `Registered`, `held` + 1 | `held` + 1 | `held` + 1; the resync that follows counts it |
//! | `acquired`, earlier generation | fenced: no permit | fenced: no permit | fenced: no permit |
//! | `acknowledged` | unchanged | renewed; if the entry was deleted: `Unregistered`, `generation` + 1 | unchanged |
//! | `not_sent` | `released` is restored | `released` is restored | unchanged: the resync covers the releases |
//! | `unregistered` (no entry of this generation) | `InDoubt` | `InDoubt` | counted as another doubt |
//! | reply lost | `InDoubt` | `InDoubt` | counted as another doubt |
//! | failover of the server | unchanged: there is nothing to lose | `InDoubt` | unchanged |
//! | offline admission | `InDoubt`, `held` + 1 | `InDoubt`, `held` + 1 | `held` + 1, counted as another doubt |
//! | permit dropped | cannot happen | `held` - 1, `released` + 1 | `held` - 1, `released` + 1 |
//! | resync begins | nothing to do | nothing to do | `generation` + 1, `released` = 0, `held` is sent |
//! | resync done | unchanged | unchanged | `Registered`; if nothing was held: `Unregistered`, `generation` + 1 |
//! | resync done, another doubt since | unchanged | unchanged | unchanged: resync again |
//!
//! Replies and lost replies of an earlier generation change nothing but the count of reports in flight.
//!
//! # Why generations
//!
//! If a reply is lost, the command may have run, or may still run: it can sit in a socket buffer of a broken
//! connection. So the number that Redis counts is unknown. A resync sends the absolute number under a new
//! generation, and `slot_report.lua` stores both; every command of an earlier generation that Redis finds afterwards
//! is ignored, and its reply, should it come, is not believed either. A slot can therefore be counted twice for a
//! moment, never be lost.

mod membership;
mod outage;
mod registration;
mod heartbeat;
mod sign_of_life;
mod slot_leases;
mod slot_report;
mod subject;
mod permit;
mod lease;
mod active_set;
#[cfg(test)]
mod tests;

pub use active_set::ActiveSet;
pub(super) use heartbeat::visit_leases;
pub use heartbeat::{EARLY_REPORT, HeartbeatAction, HeartbeatRound, LeaseVisit, TICK, VisitedLease};
pub use lease::{Resync, SlotLease, SlotReportReply};
#[cfg(test)]
pub(super) use membership::OtherGateways;
pub use membership::{Membership, Portion};
pub use permit::Permits;
pub(super) use registration::{begin_registry, keep_registered};
pub use sign_of_life::{HashSlots, SignOfLife, sign_argument};
pub(super) use slot_leases::keep_signs_of_life;
pub use slot_leases::{SlotLeases, SlotReport};
pub use slot_report::PendingReport;
pub use subject::SlotSubject;
