//! Lines on their way from the queue to a destination.

/// Lines that were taken from the queue, and how far they are written.
#[derive(Debug, Default)]
pub(super) struct Batch {
    lines: Vec<u8>,
    /// Bytes of whole lines that are written.
    written: usize,
}

impl Batch {
    /// Exchanges the lines, all of which are written.
    pub(super) fn refill<T>(&mut self, take: impl FnOnce(&mut Vec<u8>) -> T) -> T {
        self.written = 0;
        take(&mut self.lines)
    }

    /// The lines that are left.
    pub(super) fn rest(&self) -> &[u8] {
        &self.lines[self.written..]
    }

    /// Notes that so many more bytes, whole lines, were written or given up. Returns the number of lines.
    pub(super) fn advance(&mut self, bytes: usize) -> u64 {
        let lines = count_lines(&self.lines[self.written..self.written + bytes]);
        self.written += bytes;
        lines
    }
}

/// Number of lines.
pub(super) fn count_lines(lines: &[u8]) -> u64 {
    memchr::memchr_iter(b'\n', lines).count() as u64
}

#[cfg(test)]
impl Batch {
    /// A batch of these lines.
    pub(super) fn of(lines: &[u8]) -> Self {
        Self { lines: lines.to_vec(), written: 0 }
    }
}
