//! Refusals of known keys, coalesced: a key that is refused in a loop costs a bounded number of records.
//!
//! For each key (or session user) and outcome, the first ten refusals within a second are records of their own. The
//! others are counted, and become one record when the second has ended. Around midnight, this holds for the requests of
//! each of the two days.
//!
//! - **Exact.** Every refusal is a record or counted in one, also when the process is killed: each count is written to
//!   a slot of a small file before its request is answered. The slots that a killed gateway left become records at the
//!   next start, exactly once.
//! - **Bounded.** The table and the slot file have 10,000 entries at most. A refusal that finds no slot, or whose slot
//!   cannot be written, is a record of its own.
//!
//! [`table`]: the refusals of the present second; [`group`]: the refusals that one record stands for; [`slot_file`]:
//! the counts on disk; [`coalescer`]: all of them together; [`flusher`]: the thread that writes the records.
#![allow(clippy::vec_box, reason = "groups move from table to table by their pointers, not by value")]

pub(crate) mod coalescer;
pub(crate) mod flusher;
mod group;
pub(crate) mod slot_file;
mod table;
