//! Balancing: which endpoint a request goes to.
//!
//! Three policies ([`BalancePolicy`]): the one of less cost, which is the default (least connections, weighed by
//! latency); one after the other (round robin); and by a hash of the identity ([`hash`]).
//!
//! # Cost
//!
//! Power of two choices (Mitzenmacher 2001): two endpoints are drawn, and the request goes to the one that costs less.
//! The cost is a peak EWMA over the latency times the requests in flight, as in Finagle
//! (`com.twitter.finagle.loadbalancer.p2c`) and tower (`tower::load::peak_ewma`), times a penalty for the share of
//! failures:
//!
//! ```text
//! (latency + 5 ms) * (1 + in flight / share) * (1 + (10 * failures) ^ 4)
//! ```
//!
//! - The latency is the time from the end of the request, its body included, to the head of the response.
//! - A latency that is higher than the estimate replaces it at once; the estimate then falls with e^(-t / 2 s). The
//!   latency of a failure is counted only when it is higher: a fast failure is no reason to be chosen.
//! - The share of failures moves by a sixteenth with each outcome, and falls with e^(-t / 10 s). One failure alone
//!   weighs little, two in a row triple the cost.
//! - Endpoints are drawn by their share, and the first one is taken unless the second one costs two thirds of it at
//!   most. So equal endpoints, whose latencies differ by chance, have equal shares.

mod settings;
mod random;
mod load;
mod choice;
mod turns;
mod hash;

pub(crate) use choice::choose_of_two;
pub(crate) use hash::{Candidate, choose_by_hash, hash, hash_of};
pub(crate) use load::Load;
pub(crate) use random::Random;
pub use settings::{BalancePolicy, BalanceSettings, HashBy};
pub(crate) use turns::Turns;
