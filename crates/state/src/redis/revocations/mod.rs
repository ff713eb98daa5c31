//! Revocations, and what else a person withdraws in an incident, survive failovers while a gateway that knows them
//! lives.
//!
//! Replication is asynchronous. A primary that is lost takes along what its replicas have not got yet, and the one that
//! follows it would admit a revoked key, or find an ended session. So each gateway keeps withdrawals until no failover
//! can undo them: those that it has acknowledged itself, and within a fraction of a second those of the others, which
//! it reads in the log that all gateways share. They are revoked keys and management tokens, removed users with their
//! keys, ended sessions and removed federation rules, which are final; disabled keys and suspensions, until they are
//! taken back; and rotations, so that a replaced secret does not come back.
//!
//! # Guarantees
//!
//! - A gateway refuses what is final and kept, whatever a server says; what it has revoked itself, from the
//!   acknowledgement on. There is no moment at which a link is up and the gateway would admit a key that it knows to be
//!   revoked. The others hold again from their assertion on.
//! - Every server that a link of the process leads to, under whatever address, is asked several times a second, and
//!   whenever any link notices a change, for the history that it is in: its process (`run_id`) with its replication id,
//!   which changes with every promotion and restart. A revocation is written to every primary of its hash slot whose
//!   history has not confirmed it.
//! - A confirmation is the reply of the script that wrote the revocation, between two replies with the same history. An
//!   error of any kind (`NOREPLICAS`, `CLUSTERDOWN`, `OOM`, `LOADING`, `MOVED`) confirms nothing; what was confirmed
//!   before it stays confirmed, and the rest is tried again.
//! - So a gateway that knows nothing of a revocation, because it has read the log too late or has just started,
//!   obeys it as soon as the new primary has confirmed it: milliseconds after a gateway that keeps it has
//!   noticed the primary.
//! - The revocation is lost only when all gateways that keep it die together with the primary.
//! - A revocation is forgotten when its server has had it for ten minutes, all replicas have confirmed it, and it is on
//!   disk where the server writes to disk (`entry`).
//!
//! # Cost
//!
//! One task for each process and server, over one connection that a link has already, outside of the link's deadline
//! and breaker; no link waits for it. A script writes the revocations of one hash slot, 200 at most (on a single
//! server, of any hash slots). A gateway without recent revocations asks nothing.

mod asserter;
mod assertion;
mod batches;
mod kept;
mod entry;
mod revocation;

pub(super) use asserter::assert_revocations;
pub use assertion::{GATHER as ASSERTION_GATHER, RETRY_PAUSE as ASSERTION_RETRY};
pub use batches::round_trips;
pub use kept::{Kept, KeptRevocations};
pub(crate) use revocation::Subject;
pub use revocation::{Revocation, Write};
