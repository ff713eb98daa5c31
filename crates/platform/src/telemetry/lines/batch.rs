//! Lines on their way from the queue to a destination, and how whole lines are written to a file.

use std::fs::File;
use std::io::{self, Write as _};

/// Lines that were taken from the queue, and how far they are written.
#[derive(Debug, Default)]
pub(crate) struct Batch {
    lines: Vec<u8>,
    /// Bytes of whole lines that are written.
    written: usize,
}

impl Batch {
    /// Exchanges the lines, all of which are written.
    pub(crate) fn refill<T>(&mut self, take: impl FnOnce(&mut Vec<u8>) -> T) -> T {
        self.written = 0;
        take(&mut self.lines)
    }

    /// The lines that are left.
    pub(crate) fn rest(&self) -> &[u8] {
        &self.lines[self.written..]
    }

    /// Notes that so many more bytes, whole lines, were written or given up. Returns the number of lines.
    pub(crate) fn advance(&mut self, bytes: usize) -> u64 {
        let lines = count_lines(&self.lines[self.written..self.written + bytes]);
        self.written += bytes;
        lines
    }
}

/// Number of lines.
pub(crate) fn count_lines(lines: &[u8]) -> u64 {
    memchr::memchr_iter(b'\n', lines).count() as u64
}

/// Writes as much as it can. Returns the bytes that were written, also of a failed write.
pub(crate) fn write_some(file: &mut File, bytes: &[u8]) -> (usize, io::Result<()>) {
    let mut written = 0;
    while written < bytes.len() {
        match file.write(&bytes[written..]) {
            Ok(0) => return (written, Err(io::ErrorKind::WriteZero.into())),
            Ok(more) => written += more,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return (written, Err(error)),
        }
    }
    (written, Ok(()))
}

/// Length of the whole lines.
pub(crate) fn end_of_last_line(lines: &[u8]) -> usize {
    memchr::memrchr(b'\n', lines).map_or(0, |end| end + 1)
}

#[cfg(test)]
impl Batch {
    /// A batch of these lines.
    pub(crate) fn of(lines: &[u8]) -> Self {
        Self { lines: lines.to_vec(), written: 0 }
    }
}
