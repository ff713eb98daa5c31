//! Time as a value: microseconds since the Unix epoch.
//!
//! Decisions take `now` as an argument and read no clock, so that tests can choose it. Within one process the clock
//! never steps back: it is the wall clock at its first reading plus the monotonic time since then, and [`follow_wall`]
//! keeps it in step with the wall clock (`discipline`). [`steady`] is the monotonic time alone.

mod micros;
mod discipline;
mod process_clock;
pub mod rfc3339;
pub mod http_date;

pub use micros::{InvalidTime, Micros};
pub use process_clock::{Reading, follow_wall, now, read, steady};
