//! Decisions: one script on the server for each request, with a cache that saves reading records first.
//!
//! - The decision is optimistic. The gateway evaluates its cached records, and `decide.lua` commits the result only if
//!   their versions are still current; otherwise it returns the records, and the gateway decides again.
//! - The cache never authorizes: every decision carries the versions it was made from, and Redis rejects stale ones.
//! - A key that was refused several times in a row is refused locally for a short time (`local_refusal`): a client in a
//!   loop costs Redis one decision a second.
//! - A decision has a deadline. A reply that comes later is reconciled (`late_answer`), so that neither a slot nor a
//!   token is lost or counted twice.
//! - While Redis is unavailable, recently confirmed keys may be admitted offline (`offline`), if so configured.
//!
//! Read `steps` first, which says what comes next, then `decider` and `decide_call`, which perform it.

mod offline;
mod share;
mod exact_share;
#[cfg(test)]
mod share_history;
mod decider;
mod steps;
mod decide_call;
mod budget;
mod reservation;
mod call_arguments;
mod pending_reports;
mod call_outcome;
mod shared;
mod health;
mod probe;
mod decide_codec;
mod key_cache;
mod cached_refusal;
mod usage;
mod late_answer;
mod check_secret;
mod verdict;
mod local_refusal;

pub use call_arguments::CallArguments;
pub use call_outcome::{CallOutcome, CallResult, DecideInput, complete, give_back, took_token};
pub use decide_codec::{DecideError, Decided, Evaluation, decode_read, encode_read};
pub(super) use decider::Decider;
pub use key_cache::CachedKey;
pub use late_answer::LateAnswer;
pub(super) use probe::probe_decisions;
pub(crate) use reservation::RedisReservation;
pub use shared::DeciderShared;
pub use steps::{DecisionSteps, Next, Step, after_status_call};
pub use usage::{CachedUsage, UnreportedUses};
