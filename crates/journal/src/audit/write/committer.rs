//! The committer: the thread that writes the lines that no request writes itself.
//!
//! - It writes outcomes within 10 ms, unless a later use has carried them out before: with steady traffic that is
//!   always so, and the thread neither writes nor holds a lock that a request waits for.
//! - When `synced`, it alone writes: one write and one sync for all lines that were appended meanwhile (group commit).
//! - While there is traffic, it looks for lines by itself, and no request wakes it; it sleeps when there is none.

use std::time::Duration;

use super::completion::BatchResult;
use super::mode::Mode;
use super::pending::SpareBuffers;
use super::writer::JournalWriter;
use domain::clock;

/// Longest time that an outcome waits to be written together with others. A kill loses the outcomes of this time.
pub const MAX_OUTCOME_DELAY: Duration = Duration::from_millis(10);
/// Looks without a new line after which the thread sleeps until a request wakes it: waking it costs the request a
/// system call, and a gateway without traffic should not wake up for nothing.
const IDLE_LOOKS: u32 = 5;
/// Pause after a failed write: requests retry at once themselves, and this thread must not spin.
pub const RETRY_DELAY: Duration = Duration::from_millis(100);

/// Runs until the journal is closed; then writes and syncs the remaining lines.
pub(crate) fn run(writer: &JournalWriter) {
    while !wait_for_lines(writer).is_closed() {
        // The failure was logged, and those who wait for these lines were told by their completion.
        if writer.flush(&mut writer.lock_segment()).is_err() {
            std::thread::sleep(RETRY_DELAY);
        }
    }
    write_remaining(writer);
}

/// Waits until lines are to be written, or the journal is closed, and returns its mode.
fn wait_for_lines(writer: &JournalWriter) -> Mode {
    let mut pending = writer.lock_pending();
    let mut watch = Watch::new(pending.next);
    let mut pause = MAX_OUTCOME_DELAY;
    loop {
        // Outcomes may wait a little for others; a request that waits for a sync may not.
        if !pending.sync_requested && !pending.mode.get().is_closed() {
            writer.wake.wait_for(&mut pending, pause);
        }
        let mode = pending.mode.get();
        if pending.sync_requested && !pending.is_empty() || mode.is_closed() {
            return mode;
        }
        match watch.look(pending.oldest(clock::now()), pending.next) {
            Look::Write => return mode,
            Look::Wait(until_due) => pause = until_due,
            Look::Sleep => {
                drop(pending);
                sleep_until_woken(writer);
                pending = writer.lock_pending();
                (watch, pause) = (Watch::new(pending.next), MAX_OUTCOME_DELAY);
            }
        }
    }
}

/// Decision of the committer after a look at the pending lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Look {
    /// The oldest line has waited for as long as it may.
    Write,
    /// Nothing is due before this time has passed.
    Wait(Duration),
    /// There was no new line for a while, and none is pending.
    Sleep,
}

/// Watch of the committer over the pending lines, with what the last look found. It belongs to the committer alone. The
/// simulation of many gateways looks by it, too.
#[derive(Debug)]
pub struct Watch {
    /// Number of the oldest pending line.
    oldest: Option<u64>,
    /// Number of the line that is appended next.
    next: u64,
    idle_looks: u32,
}

impl Watch {
    /// Begins when the next line has this number.
    pub fn new(next: u64) -> Self {
        Self { oldest: None, next, idle_looks: 0 }
    }

    /// Looks at the oldest pending line, with its age, and at the number of the next line.
    pub fn look(&mut self, oldest: Option<(u64, Duration)>, next: u64) -> Look {
        let last = std::mem::replace(&mut self.oldest, oldest.map(|(number, _)| number));
        let has_news = std::mem::replace(&mut self.next, next) != next;
        let is_idle = oldest.is_none() && !has_news;
        self.idle_looks = if is_idle { self.idle_looks + 1 } else { 0 };
        match oldest {
            // The pause after a look ends when the line that it has seen is due, whatever the clock says.
            Some((number, age)) if age >= MAX_OUTCOME_DELAY || last == Some(number) => Look::Write,
            Some((_, age)) => Look::Wait(MAX_OUTCOME_DELAY - age),
            None if self.idle_looks == IDLE_LOOKS => Look::Sleep,
            None => Look::Wait(MAX_OUTCOME_DELAY),
        }
    }
}

/// Sleeps until the first line, or until the journal is closed.
fn sleep_until_woken(writer: &JournalWriter) {
    let mut pending = writer.lock_pending();
    while pending.is_empty() && !pending.mode.get().is_closed() {
        pending.committer_asleep = true;
        writer.wake.wait(&mut pending);
    }
    pending.committer_asleep = false;
}

fn write_remaining(writer: &JournalWriter) {
    let mut segment = writer.lock_segment();
    // After a failed sync nothing is written any more: the next start closes the open uses.
    let is_lost = writer.mode.get().sync_failed();
    if is_lost || writer.flush(&mut segment).and_then(|()| writer.note_sync(segment.sync())).is_err() {
        tracing::error!(path = %writer.settings.path.display(),
            "the audit journal was closed without writing its last lines; their requests will be closed as aborted");
    }
    // A segment that became due while the journal was being closed was not begun.
    segment.discard_next(&writer.settings);
    // Releases those who wait for lines that will never be written.
    let left = writer.lock_pending().take_batch(SpareBuffers::default());
    left.complete(BatchResult::Failed);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn aged(number: u64, milliseconds: u64) -> Option<(u64, Duration)> {
        Some((number, Duration::from_millis(milliseconds)))
    }

    #[test]
    fn line_is_written_when_it_is_due() {
        let mut watch = Watch::new(5);
        assert_eq!(watch.look(aged(5, 3), 6), Look::Wait(Duration::from_millis(7)));
        assert_eq!(watch.look(aged(5, 10), 9), Look::Write, "others behind it change nothing");
        assert_eq!(Watch::new(5).look(aged(5, 60), 6), Look::Write, "at the first look, too");
    }

    #[test]
    fn line_is_written_at_the_second_look_also_when_the_clock_stands() {
        let mut watch = Watch::new(5);
        assert_eq!(watch.look(aged(5, 0), 6), Look::Wait(MAX_OUTCOME_DELAY));
        assert_eq!(watch.look(aged(5, 0), 6), Look::Write);
    }

    #[test]
    fn lines_that_later_uses_carry_out_are_left_to_them() {
        let mut watch = Watch::new(5);
        for number in 5..1000 {
            assert_eq!(watch.look(aged(number, 1), number + 1), Look::Wait(Duration::from_millis(9)));
        }
    }

    #[test]
    fn thread_sleeps_only_when_no_line_came_for_a_while() {
        let mut watch = Watch::new(5);
        let wait = Look::Wait(MAX_OUTCOME_DELAY);
        for number in 6..100 {
            assert_eq!(watch.look(None, number), wait, "lines come and are written between the looks");
        }
        for _ in 1..IDLE_LOOKS {
            assert_eq!(watch.look(None, 99), wait);
        }
        assert_eq!(watch.look(None, 99), Look::Sleep);
    }
}
