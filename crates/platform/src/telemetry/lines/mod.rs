//! Lines on their way to a destination, of the access log and of the log on standard error.
//!
//! - A line goes into a bounded queue (`queue`), and its sender never waits: a line that finds no room is dropped and
//!   counted.
//! - A thread (`writer`) brings the lines to their destination, a whole batch at a time.

mod batch;
mod queue;
mod standard_stream;
mod writer;

pub(super) use batch::{Batch, count_lines, end_of_last_line, write_some};
pub(super) use queue::Queue;
pub(super) use standard_stream::StandardStream;
pub(super) use writer::{Destination, Writer};
