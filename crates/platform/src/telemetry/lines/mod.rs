//! Lines on their way to a destination, of the access log and of the log on standard error: a [`LineSink`] that takes
//! them from a [queue](crate::outbound::delivery) of bytes.
//!
//! - Lines that cannot be written are kept, and tried again about every second.
//! - A line is written whole or not at all.

mod destination;
mod standard_stream;

pub(super) use destination::{LineQueue, LineSink, count_lines, end_of_last_line, note_written, start, write_some};
pub(super) use standard_stream::StandardStream;
