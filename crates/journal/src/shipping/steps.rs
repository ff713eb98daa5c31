//! The steps of a shipper, without I/O: what it does next after each result.
//!
//! The [`Shipper`](super::shipper::Shipper) performs them on the files of the journal and a sink. The simulation of
//! many gateways performs the same steps in virtual time.
//!
//! | after | next |
//! |---|---|
//! | the begin, and the pause after a failure | connect |
//! | a connection | open the journal at the position: the sink's own, or that in the file |
//! | the journal is open | read; if it has lost the lines of a sink that keeps the position, open it at the copy |
//! | a part with something to deliver, or a heartbeat of the sink is due | deliver |
//! | a part with nothing | note that the sink has caught up |
//! | a delivery | write the position, unless the sink keeps it; then confirm |
//! | the end of the journal | pause, and read; or end, when the shipper is to finish |
//! | a failure | pause, which grows, and connect; the end, when the shipper is to finish and has tried a few times |
//!
//! - **At least once**: a position moves only when its part was delivered. A part whose delivery has failed may have
//!   been taken, because the answer to a commit can be lost: it is read and delivered again from the position that the
//!   next connection finds, and the sink knows the ids of its records.
//! - **Reconnect storm**: shippers that lost a sink together come back apart ([`Backoff`]).

use std::time::{Duration, Instant};

use crate::audit::StreamPosition;
use platform::outbound::delivery::{Backoff, Retry};

/// Time between two looks at a journal whose end was reached: records are at the sink within it and the delivery.
const INTERVAL: Duration = Duration::from_millis(500);
/// Time between two copies of a position that the sink keeps itself.
const COPY_INTERVAL: Duration = Duration::from_secs(1);
/// Tries after a failure of a shipper that is to finish: its connection may have ended long before it is used.
const LAST_TRIES: u32 = 3;
/// Pause before each of them.
const LAST_PAUSE: Duration = Duration::from_millis(250);

/// Progress of one shipper. It belongs to its thread alone. Dropped, it loses nothing: the next one begins at the
/// position that the sink, or the file, has.
#[derive(Debug)]
pub struct ShipSteps {
    stage: Stage,
    /// The end of what the sink has taken, as the connection found it or the last delivery moved it.
    position: StreamPosition,
    /// The sink moves the position in one transaction with the records; the file has a copy.
    keeps_position: bool,
    /// Time after which a part with nothing is delivered, so that the sink knows how fresh it is; none: never.
    heartbeat: Option<Duration>,
    /// Time of the last delivery, or of the connection.
    last_delivery: Instant,
    /// Time of the last copy of the position; none since the connection.
    last_copy: Option<Instant>,
    backoff: Backoff,
    /// Tries that are left when the shipper is to finish.
    last_tries: u32,
}

/// The action whose result is awaited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Connecting,
    Opening,
    ReadingCopy,
    OpeningAtCopy,
    Reading,
    Delivering(PartEnd),
    WritingPosition(PartEnd),
    Confirming(PartEnd),
    CatchingUp,
    AtEnd,
    Failed,
    Ended,
}

/// End of a part of the journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PartEnd {
    /// Position after the part.
    pub position: StreamPosition,
    /// The part goes up to the end of the journal.
    pub reached_end: bool,
    /// The shipper was to finish before that end was looked for: the journal is closed, and this end is its last.
    pub is_finishing: bool,
}

/// Result of an action.
#[derive(Clone, Copy, Debug)]
pub enum ShipEvent {
    /// The sink is connected.
    Connected {
        /// The position that the sink keeps of the journal, or that of the file.
        position: StreamPosition,
        /// The sink keeps it.
        keeps_position: bool,
    },
    /// The journal is open at the position.
    Opened {
        /// The journal no longer has the last lines before it: the journal was put back to an earlier state.
        has_lost_lines: bool,
    },
    /// The copy of the position was read.
    CopyRead(StreamPosition),
    /// A part of the journal was read.
    Read {
        /// Its end.
        end: PartEnd,
        /// There are records in it.
        has_records: bool,
    },
    /// The action has succeeded, or the pause is over.
    Done,
    /// The action has failed. A delivery may have been taken nevertheless.
    Failed {
        /// When the sink may be tried again.
        retry: Retry,
        /// The shipper is to finish.
        is_finishing: bool,
        /// Jitter of the pause, as a part of [`u32::MAX`].
        jitter: u32,
    },
}

/// The next action of a shipper. Each but the end has one event as its result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShipAction {
    /// Connect to the sink, and look up the position.
    Connect,
    /// Open the journal at this position.
    Open(StreamPosition),
    /// Read the copy of the position.
    ReadCopy,
    /// Open the journal at the copy of the position, whatever is lost before it.
    OpenAtCopy(StreamPosition),
    /// Read on.
    Read,
    /// Deliver the part that was read last.
    Deliver,
    /// Bring this position to disk: the sink has taken everything before it.
    WritePosition(StreamPosition),
    /// Note that the part was delivered.
    Confirm {
        /// Copy the position.
        copies_position: bool,
    },
    /// Note that the sink has everything.
    NoteCaughtUp,
    /// Pause. The pause ends early when the shipper is to finish: a sink that is back by then gets the rest.
    Pause(Duration),
    /// Pause before one of the last tries.
    LastPause(Duration),
    /// End: everything was delivered, or the last tries have failed. The next shipper delivers what is left.
    End,
}

impl ShipSteps {
    /// Begins at `now`, with [`ShipAction::Connect`].
    pub fn new(heartbeat: Option<Duration>, now: Instant) -> Self {
        Self {
            stage: Stage::Connecting,
            position: StreamPosition::START,
            keeps_position: false,
            heartbeat,
            last_delivery: now,
            last_copy: None,
            backoff: Backoff::default(),
            last_tries: LAST_TRIES,
        }
    }

    /// The end of what the sink has taken. A part that is delivered begins there.
    pub fn position(&self) -> StreamPosition {
        self.position
    }

    /// The action after a result that came at `now`.
    pub fn step(&mut self, event: ShipEvent, now: Instant) -> ShipAction {
        match (self.stage, event) {
            (_, ShipEvent::Failed { retry, is_finishing, jitter }) => self.fail(retry, is_finishing, jitter),
            (Stage::Connecting, ShipEvent::Connected { position, keeps_position }) => {
                self.position = position;
                self.keeps_position = keeps_position;
                self.last_delivery = now;
                self.last_copy = None;
                self.enter(Stage::Opening, ShipAction::Open(position))
            }
            // The copy of the position was put back with the journal: what was written since is behind it.
            (Stage::Opening, ShipEvent::Opened { has_lost_lines: true }) if self.keeps_position => {
                self.enter(Stage::ReadingCopy, ShipAction::ReadCopy)
            }
            (Stage::ReadingCopy, ShipEvent::CopyRead(copy)) if copy.is_before(&self.position) => {
                self.enter(Stage::OpeningAtCopy, ShipAction::OpenAtCopy(copy))
            }
            (Stage::Opening | Stage::OpeningAtCopy, ShipEvent::Opened { .. })
            | (Stage::ReadingCopy, ShipEvent::CopyRead(_)) => self.read(),
            (Stage::Reading, ShipEvent::Read { end, has_records }) => {
                let is_due = self.heartbeat.is_some_and(|pause| now.duration_since(self.last_delivery) >= pause);
                if end.position != self.position || has_records || is_due {
                    return self.enter(Stage::Delivering(end), ShipAction::Deliver);
                }
                debug_assert!(end.reached_end, "a part with nothing goes up to the end of the journal");
                self.enter(if end.is_finishing { Stage::Ended } else { Stage::CatchingUp }, ShipAction::NoteCaughtUp)
            }
            (Stage::Delivering(end), ShipEvent::Done) if !self.keeps_position && end.position != self.position => {
                self.enter(Stage::WritingPosition(end), ShipAction::WritePosition(end.position))
            }
            (Stage::Delivering(end) | Stage::WritingPosition(end), ShipEvent::Done) => self.confirm(end, now),
            (Stage::Confirming(end), ShipEvent::Done) => self.after_part(end),
            (Stage::CatchingUp, ShipEvent::Done) => self.enter(Stage::AtEnd, ShipAction::Pause(INTERVAL)),
            (Stage::AtEnd, ShipEvent::Done) => self.read(),
            (Stage::Failed, ShipEvent::Done) => self.enter(Stage::Connecting, ShipAction::Connect),
            (Stage::Ended, ShipEvent::Done) => ShipAction::End,
            (stage, event) => unreachable!("a shipper in the stage {stage:?} does not get {event:?}"),
        }
    }

    fn enter(&mut self, stage: Stage, action: ShipAction) -> ShipAction {
        self.stage = stage;
        action
    }

    fn read(&mut self) -> ShipAction {
        self.enter(Stage::Reading, ShipAction::Read)
    }

    /// The part is at the sink, and its position is kept there or in the file.
    fn confirm(&mut self, end: PartEnd, now: Instant) -> ShipAction {
        self.position = end.position;
        self.last_delivery = now;
        self.backoff.reset();
        let is_due = self.last_copy.is_none_or(|at| now.duration_since(at) >= COPY_INTERVAL);
        let copies_position = self.keeps_position && is_due;
        if copies_position {
            self.last_copy = Some(now);
        }
        self.enter(Stage::Confirming(end), ShipAction::Confirm { copies_position })
    }

    fn after_part(&mut self, end: PartEnd) -> ShipAction {
        match end {
            PartEnd { reached_end: false, .. } => self.read(),
            PartEnd { is_finishing: true, .. } => self.enter(Stage::Ended, ShipAction::End),
            PartEnd { .. } => self.enter(Stage::AtEnd, ShipAction::Pause(INTERVAL)),
        }
    }

    /// The connection is given up: only a new one tells what the sink has taken.
    fn fail(&mut self, retry: Retry, is_finishing: bool, jitter: u32) -> ShipAction {
        debug_assert!(!matches!(self.stage, Stage::AtEnd | Stage::Failed | Stage::Ended), "pauses do not fail");
        if !is_finishing {
            let pause = self.backoff.pause_after(retry, jitter);
            return self.enter(Stage::Failed, ShipAction::Pause(pause));
        }
        let Some(left) = self.last_tries.checked_sub(1) else {
            return self.enter(Stage::Ended, ShipAction::End);
        };
        self.last_tries = left;
        self.enter(Stage::Failed, ShipAction::LastPause(LAST_PAUSE))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAUSE: ShipAction = ShipAction::Pause(INTERVAL);

    fn at(line: u64) -> StreamPosition {
        StreamPosition { segment: 1, offset: line * 100, line, ..StreamPosition::START }
    }

    /// A part that goes up to this line.
    fn part(line: u64, reached_end: bool, is_finishing: bool) -> ShipEvent {
        ShipEvent::Read { end: PartEnd { position: at(line), reached_end, is_finishing }, has_records: false }
    }

    fn failed(is_finishing: bool) -> ShipEvent {
        ShipEvent::Failed { retry: Retry::Later, is_finishing, jitter: u32::MAX / 2 }
    }

    /// Steps of a shipper that is connected to a sink at line 5, and reads.
    fn connected(keeps_position: bool, now: Instant) -> ShipSteps {
        let mut steps = ShipSteps::new(None, now);
        let opened = steps.step(ShipEvent::Connected { position: at(5), keeps_position }, now);
        assert_eq!(opened, ShipAction::Open(at(5)));
        assert_eq!(steps.step(ShipEvent::Opened { has_lost_lines: false }, now), ShipAction::Read);
        steps
    }

    #[test]
    fn position_is_written_after_the_delivery_and_before_the_confirmation() {
        let now = Instant::now();
        let mut steps = connected(false, now);
        assert_eq!(steps.step(part(9, true, false), now), ShipAction::Deliver);
        assert_eq!(steps.position(), at(5), "nothing is delivered yet");
        assert_eq!(steps.step(ShipEvent::Done, now), ShipAction::WritePosition(at(9)));
        assert_eq!(steps.position(), at(5), "the position is not on disk yet");
        assert_eq!(steps.step(ShipEvent::Done, now), ShipAction::Confirm { copies_position: false });
        assert_eq!(steps.position(), at(9));
        assert_eq!(steps.step(ShipEvent::Done, now), PAUSE);
        assert_eq!(steps.step(ShipEvent::Done, now), ShipAction::Read);
    }

    #[test]
    fn position_of_the_sink_is_copied_once_a_second() {
        let now = Instant::now();
        let mut steps = connected(true, now);
        for (line, milliseconds, copies_position) in [(6, 0, true), (7, 999, false), (8, 1000, true)] {
            let now = now + Duration::from_millis(milliseconds);
            assert_eq!(steps.step(part(line, false, false), now), ShipAction::Deliver);
            assert_eq!(steps.step(ShipEvent::Done, now), ShipAction::Confirm { copies_position });
            assert_eq!(steps.step(ShipEvent::Done, now), ShipAction::Read, "more is there");
        }
    }

    #[test]
    fn delivery_without_an_answer_is_made_again_from_the_position_of_the_next_connection() {
        let now = Instant::now();
        // The sink has taken the part, or has not.
        for found in [5, 9] {
            let mut steps = connected(true, now);
            assert_eq!(steps.step(part(9, true, false), now), ShipAction::Deliver);
            assert_eq!(steps.step(failed(false), now), ShipAction::Pause(Duration::from_millis(250)));
            assert_eq!(steps.position(), at(5), "a failure moves no position");
            assert_eq!(steps.step(ShipEvent::Done, now), ShipAction::Connect);
            let again = ShipEvent::Connected { position: at(found), keeps_position: true };
            assert_eq!(steps.step(again, now), ShipAction::Open(at(found)));
        }
    }

    #[test]
    fn pauses_after_failures_grow_until_a_delivery() {
        let now = Instant::now();
        let mut steps = ShipSteps::new(None, now);
        for milliseconds in [250, 500, 1000] {
            assert_eq!(steps.step(failed(false), now), ShipAction::Pause(Duration::from_millis(milliseconds)));
            assert_eq!(steps.step(ShipEvent::Done, now), ShipAction::Connect);
        }
        steps.step(ShipEvent::Connected { position: at(5), keeps_position: false }, now);
        steps.step(ShipEvent::Opened { has_lost_lines: false }, now);
        assert_eq!(steps.step(part(9, true, false), now), ShipAction::Deliver);
        steps.step(ShipEvent::Done, now);
        // The position cannot be written: the part was delivered, and the sink is not confirmed.
        assert_eq!(steps.step(failed(false), now), ShipAction::Pause(Duration::from_secs(2)));
        steps.step(ShipEvent::Done, now);
        steps.step(ShipEvent::Connected { position: at(5), keeps_position: true }, now);
        steps.step(ShipEvent::Opened { has_lost_lines: false }, now);
        steps.step(part(9, true, false), now);
        assert_eq!(steps.step(ShipEvent::Done, now), ShipAction::Confirm { copies_position: true });
        steps.step(ShipEvent::Done, now);
        steps.step(ShipEvent::Done, now);
        assert_eq!(steps.step(failed(false), now), ShipAction::Pause(Duration::from_millis(250)), "it was delivered");
    }

    #[test]
    fn server_that_asks_for_a_time_is_tried_after_it() {
        let now = Instant::now();
        let asked = Duration::from_secs(7);
        let event = ShipEvent::Failed { retry: Retry::After(asked), is_finishing: false, jitter: 0 };
        assert_eq!(ShipSteps::new(None, now).step(event, now), ShipAction::Pause(asked));
    }

    #[test]
    fn shipper_that_is_to_finish_ends_at_the_end_or_after_its_last_tries() {
        let now = Instant::now();
        let mut steps = connected(true, now);
        assert_eq!(steps.step(part(9, true, true), now), ShipAction::Deliver);
        steps.step(ShipEvent::Done, now);
        assert_eq!(steps.step(ShipEvent::Done, now), ShipAction::End);
        let mut steps = connected(true, now);
        assert_eq!(steps.step(part(5, true, true), now), ShipAction::NoteCaughtUp);
        assert_eq!(steps.step(ShipEvent::Done, now), ShipAction::End);
        let mut steps = connected(true, now);
        for _ in 0..LAST_TRIES {
            assert_eq!(steps.step(failed(true), now), ShipAction::LastPause(LAST_PAUSE));
            assert_eq!(steps.step(ShipEvent::Done, now), ShipAction::Connect);
        }
        assert_eq!(steps.step(failed(true), now), ShipAction::End);
    }

    #[test]
    fn journal_that_was_put_back_is_read_from_the_copy_when_the_sink_keeps_the_position() {
        let now = Instant::now();
        let lost = ShipEvent::Opened { has_lost_lines: true };
        for (keeps_position, copy, next) in
            [(true, 3, ShipAction::OpenAtCopy(at(3))), (true, 5, ShipAction::Read), (false, 3, ShipAction::Read)]
        {
            let mut steps = ShipSteps::new(None, now);
            steps.step(ShipEvent::Connected { position: at(5), keeps_position }, now);
            let mut action = steps.step(lost, now);
            if action == ShipAction::ReadCopy {
                action = steps.step(ShipEvent::CopyRead(at(copy)), now);
            }
            assert_eq!(action, next);
            if let ShipAction::OpenAtCopy(_) = action {
                assert_eq!(steps.step(lost, now), ShipAction::Read, "whatever is lost before the copy");
            }
            assert_eq!(steps.position(), at(5), "the sink compares it with its own");
        }
    }

    #[test]
    fn heartbeat_delivers_a_part_with_nothing_and_moves_no_position() {
        let now = Instant::now();
        let pause = Duration::from_secs(5);
        let mut steps = ShipSteps { heartbeat: Some(pause), ..connected(false, now) };
        assert_eq!(steps.step(part(5, true, false), now), ShipAction::NoteCaughtUp);
        assert_eq!(steps.step(ShipEvent::Done, now), PAUSE);
        steps.step(ShipEvent::Done, now);
        assert_eq!(steps.step(part(5, true, false), now + pause), ShipAction::Deliver);
        let confirmed = steps.step(ShipEvent::Done, now + pause);
        assert_eq!(confirmed, ShipAction::Confirm { copies_position: false }, "no position to write");
    }
}
