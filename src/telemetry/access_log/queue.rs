//! Bounded queue between the threads of requests and the writer.
//!
//! - Adding a line takes a short lock and copies it; it never waits for the writer. Beyond the bound a line is dropped.
//! - The writer takes all lines at once, so that one write serves many of them.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Bytes of lines that wait: a second of 20,000 requests, and far more than one write takes.
const MAX_WAITING: usize = 16 << 20;
/// Time for which the writer collects lines after the first one, so that it is not woken for each.
const COLLECT: Duration = Duration::from_millis(20);
/// Capacity that is kept when the queue was emptied; what a surge took beyond is given back.
const KEPT_CAPACITY: usize = 1 << 20;

/// The queue.
#[derive(Debug, Default)]
pub(super) struct Queue {
    state: Mutex<State>,
    /// Wakes the writer.
    changed: Condvar,
    /// Wakes who waits for the end of the writer.
    ended: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// Whole lines.
    lines: Vec<u8>,
    /// True when the file is to be opened again.
    reopen: bool,
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
    /// Adds a line. Returns false when it was dropped.
    pub(super) fn push(&self, line: &[u8]) -> bool {
        let mut state = self.lock();
        if state.is_closed || state.lines.len() + line.len() > MAX_WAITING {
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
    pub(super) fn reopen(&self) {
        self.lock().reopen = true;
        self.changed.notify_one();
    }

    /// Takes no more lines, and has the writer end when it has written those that are there.
    pub(super) fn close(&self) {
        self.lock().is_closed = true;
        self.changed.notify_one();
    }

    /// Waits until the writer has ended. Returns the lines that are left when it has not within the time: they are discarded.
    pub(super) fn wait_for_end(&self, timeout: Duration) -> Option<Vec<u8>> {
        let waited = self.ended.wait_timeout_while(self.lock(), timeout, |state| !state.has_ended);
        let (mut state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        (!state.has_ended).then(|| std::mem::take(&mut state.lines))
    }

    /// Returns whether the writer has ended.
    pub(super) fn has_ended(&self) -> bool {
        self.lock().has_ended
    }

    /// Waits for something to do, and exchanges the lines for an empty buffer.
    pub(super) fn take(&self, lines: &mut Vec<u8>) -> Taken {
        let idle = |state: &mut State| state.lines.is_empty() && !state.reopen && !state.is_closed;
        let state = self.changed.wait_while(self.lock(), idle).unwrap_or_else(PoisonError::into_inner);
        let collecting = |state: &mut State| state.lines.len() < KEPT_CAPACITY && !state.reopen && !state.is_closed;
        let collected = self.changed.wait_timeout_while(state, COLLECT, collecting);
        let (mut state, _) = collected.unwrap_or_else(PoisonError::into_inner);
        lines.clear();
        lines.shrink_to(KEPT_CAPACITY);
        std::mem::swap(lines, &mut state.lines);
        Taken { reopen: std::mem::take(&mut state.reopen), is_closed: state.is_closed }
    }

    /// Waits before the writer tries again, at most until the queue is closed or the file is to be opened again.
    pub(super) fn wait_to_retry(&self, pause: Duration) -> Taken {
        let deadline = Instant::now() + pause;
        let mut state = self.lock();
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

    #[test]
    fn queue_is_bounded_and_whole_lines_come_out_in_order() {
        let queue = Queue::default();
        assert!(queue.push(b"a\n") && queue.push(b"b\n"));
        let long = vec![b'x'; MAX_WAITING - 4];
        assert!(queue.push(&long));
        assert!(!queue.push(b"c"), "the queue is full");
        let mut lines = Vec::new();
        assert_eq!(queue.take(&mut lines), Taken::default());
        assert!(lines.starts_with(b"a\nb\nxx") && lines.len() == MAX_WAITING);
        assert!(queue.push(b"c\n"));
        queue.take(&mut lines);
        assert_eq!(lines, b"c\n");
        assert!(lines.capacity() <= MAX_WAITING);
    }

    #[test]
    fn closed_queue_takes_no_lines_and_gives_those_that_it_has() {
        let queue = Queue::default();
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
}
