//! Bounded queue between the threads that have lines and the writer.
//!
//! - Adding a line takes a short lock and copies it; it never waits for the writer. Beyond the bound a line is dropped.
//! - The writer takes all lines at once, so that one write serves many of them.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Capacity that is kept when the queue was emptied; what a surge took beyond is given back.
const KEPT_CAPACITY: usize = 1 << 20;

/// The queue.
#[derive(Debug)]
pub(crate) struct Queue {
    /// Bytes of lines that wait at most.
    capacity: usize,
    /// Time for which the writer collects lines after the first one, so that it is not woken for each.
    collect: Duration,
    state: Mutex<State>,
    /// Wakes the writer.
    changed: Condvar,
    /// Wakes who waits for lines to be written.
    written: Condvar,
    /// Wakes who waits for the end of the writer.
    ended: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// Whole lines.
    lines: Vec<u8>,
    /// True when the file is to be opened again.
    reopen: bool,
    /// The writer has lines that are not written.
    is_writing: bool,
    /// The destination has refused them, and is tried again later.
    is_failing: bool,
    is_closed: bool,
    has_ended: bool,
}

/// Next steps of the writer, beside writing the lines that it took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Taken {
    /// Open the file again, after what was taken is written.
    pub(super) reopen: bool,
    /// No more lines will come.
    pub(super) is_closed: bool,
}

impl Queue {
    pub(crate) fn new(capacity: usize, collect: Duration) -> Self {
        let (changed, written, ended) = (Condvar::new(), Condvar::new(), Condvar::new());
        Self { capacity, collect, state: Mutex::default(), changed, written, ended }
    }

    /// Adds a line. Returns false when it was dropped.
    pub(crate) fn push(&self, line: &[u8]) -> bool {
        let mut state = self.lock();
        if state.is_closed || state.lines.len() + line.len() > self.capacity {
            return false;
        }
        let was_empty = state.lines.is_empty();
        state.lines.extend_from_slice(line);
        drop(state);
        if was_empty {
            self.changed.notify_one();
        }
        true
    }

    /// Has the writer open its file again.
    pub(crate) fn reopen(&self) {
        self.lock().reopen = true;
        self.changed.notify_one();
    }

    /// Takes no more lines, and has the writer end when it has written those that are there.
    pub(crate) fn close(&self) {
        self.lock().is_closed = true;
        self.changed.notify_one();
    }

    /// Waits until all lines are written, or cannot be, at most for this time.
    pub(crate) fn flush(&self, timeout: Duration) {
        let is_busy =
            |state: &mut State| !state.has_ended && !state.is_failing && (state.is_writing || !state.lines.is_empty());
        drop(self.written.wait_timeout_while(self.lock(), timeout, is_busy));
    }

    /// Waits until the writer has ended. Returns the lines that are left when it has not within the time: they are discarded.
    pub(crate) fn wait_for_end(&self, timeout: Duration) -> Option<Vec<u8>> {
        let waited = self.ended.wait_timeout_while(self.lock(), timeout, |state| !state.has_ended);
        let (mut state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        (!state.has_ended).then(|| std::mem::take(&mut state.lines))
    }

    /// Returns whether the writer has ended.
    pub(crate) fn has_ended(&self) -> bool {
        self.lock().has_ended
    }

    /// Waits for something to do, and exchanges the lines for an empty buffer.
    pub(super) fn take(&self, lines: &mut Vec<u8>) -> Taken {
        {
            let mut state = self.lock();
            (state.is_writing, state.is_failing) = (false, false);
        }
        self.written.notify_all();
        let idle = |state: &mut State| state.lines.is_empty() && !state.reopen && !state.is_closed;
        let state = self.changed.wait_while(self.lock(), idle).unwrap_or_else(PoisonError::into_inner);
        let collecting = |state: &mut State| state.lines.len() < KEPT_CAPACITY && !state.reopen && !state.is_closed;
        let collected = self.changed.wait_timeout_while(state, self.collect, collecting);
        let (mut state, _) = collected.unwrap_or_else(PoisonError::into_inner);
        lines.clear();
        lines.shrink_to(KEPT_CAPACITY);
        std::mem::swap(lines, &mut state.lines);
        state.is_writing = !lines.is_empty();
        Taken { reopen: std::mem::take(&mut state.reopen), is_closed: state.is_closed }
    }

    /// Waits before the writer tries again, at most until the queue is closed or the file is to be opened again.
    pub(super) fn wait_to_retry(&self, pause: Duration) -> Taken {
        let deadline = Instant::now() + pause;
        let mut state = self.lock();
        state.is_failing = true;
        self.written.notify_all();
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() || state.reopen || state.is_closed {
                return Taken { reopen: std::mem::take(&mut state.reopen), is_closed: state.is_closed };
            }
            state = self.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Notes that the writer has ended.
    pub(super) fn end(&self) {
        let mut state = self.lock();
        state.has_ended = true;
        state.is_closed = true;
        drop(state);
        self.written.notify_all();
        self.ended.notify_all();
    }

    /// A holder of this lock only copies and sets flags, so that a poisoned one is whole.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CAPACITY: usize = 16 << 20;

    fn queue() -> Queue {
        Queue::new(CAPACITY, Duration::from_millis(20))
    }

    #[test]
    fn queue_is_bounded_and_whole_lines_come_out_in_order() {
        let queue = queue();
        assert!(queue.push(b"a\n") && queue.push(b"b\n"));
        let long = vec![b'x'; CAPACITY - 4];
        assert!(queue.push(&long));
        assert!(!queue.push(b"c"), "the queue is full");
        let mut lines = Vec::new();
        assert_eq!(queue.take(&mut lines), Taken::default());
        assert!(lines.starts_with(b"a\nb\nxx") && lines.len() == CAPACITY);
        assert!(queue.push(b"c\n"));
        queue.take(&mut lines);
        assert_eq!(lines, b"c\n");
        assert!(lines.capacity() <= CAPACITY);
    }

    #[test]
    fn closed_queue_takes_no_lines_and_gives_those_that_it_has() {
        let queue = queue();
        queue.push(b"a\n");
        queue.reopen();
        queue.close();
        assert!(!queue.push(b"b\n"));
        let mut lines = Vec::new();
        assert_eq!(queue.take(&mut lines), Taken { reopen: true, is_closed: true });
        assert_eq!(lines, b"a\n");
        assert_eq!((queue.has_ended(), queue.wait_for_end(Duration::ZERO)), (false, Some(Vec::new())));
        queue.end();
        assert_eq!((queue.has_ended(), queue.wait_for_end(Duration::ZERO)), (true, None));
    }

    #[test]
    fn flush_waits_for_lines_that_wait_and_for_those_that_are_being_written() {
        let (queue, long, short) = (queue(), Duration::from_secs(60), Duration::from_millis(10));
        queue.flush(long);
        queue.push(b"a\n");
        let begun = Instant::now();
        queue.flush(short);
        assert!(begun.elapsed() >= short, "a line waits");
        let mut lines = Vec::new();
        queue.take(&mut lines);
        let begun = Instant::now();
        queue.flush(short);
        assert!(begun.elapsed() >= short, "a line is being written");
        queue.wait_to_retry(Duration::ZERO);
        // The destination has failed: it is not waited for.
        queue.flush(long);
        std::thread::scope(|scope| {
            // It is written when the writer comes for more.
            scope.spawn(|| queue.take(&mut lines));
            queue.flush(long);
            queue.close();
        });
    }
}
