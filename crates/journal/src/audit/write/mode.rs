//! Mode of a journal: what becomes of the lines that are appended, as one state machine.
//!
//! [`step`] is the protocol: a pure function of the mode and an event, with a table as its test. Its one driver is
//! `JournalWriter::apply`, which performs the actions.

use super::sync::{Arc, AtomicU8, Ordering};

use Mode::{Closed, ClosedUnsynced, HandedOver, NoRoom, ReserveScarce, Running, SpoolFailed, SyncFailed};

/// All modes, in the order of their numbers.
const MODES: [Mode; 8] = [Running, NoRoom, ReserveScarce, HandedOver, SpoolFailed, SyncFailed, Closed, ClosedUnsynced];

/// Mode of a journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Lines go to the active segment.
    Running,
    /// The last write failed, as on a full disk: uses are refused or go unrecorded, changes by
    /// management use the reserve.
    NoRoom,
    /// As `NoRoom`; half of the reserve is used up, and what is left is for changes that withdraw something.
    ReserveScarce,
    /// Another process has the journal, and lines go to a spool; or this one writes what it must before.
    HandedOver,
    /// As `HandedOver`, and the last write to the spool failed.
    SpoolFailed,
    /// A sync has failed, so that no lines are taken until a restart: the kernel may have lost what it had accepted,
    /// and no later sync would report it.
    SyncFailed,
    /// No lines are taken any more; those that are pending are written.
    Closed,
    /// As `Closed`, after a failed sync: nothing is written any more.
    ClosedUnsynced,
}

/// Event that may change the mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A batch could not be written, or there is no room for it.
    WriteFailed,
    /// A batch was written, or there is room again.
    Written,
    /// A change was written into the reserve, of which less than half is left, or more.
    ReserveUsed {
        /// Less than half is left.
        is_scarce: bool,
    },
    /// A hand-over begins.
    HandedOver,
    /// Nothing came of it: the lines of the spool, if there is one, are in the journal.
    TakenBack,
    /// A sync has failed.
    SyncFailed,
    /// The process ends.
    Closed,
}

/// Action that follows a transition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Logs that the journal cannot be written: once for each outage, and not for each request.
    LogFailure,
    /// Logs that it can be written again.
    LogRecovery,
    /// Logs that a sync has failed.
    LogSyncFailure,
    /// Fails all who wait for pending lines.
    FailPending,
    /// Wakes the committer, which writes what is left.
    WakeCommitter,
}

/// The mode after an event, and what is to be done.
pub(crate) fn step(mode: Mode, event: Event) -> (Mode, &'static [Action]) {
    match (mode, event) {
        // A failed sync is final.
        (SyncFailed, Event::Closed) => (ClosedUnsynced, &[Action::WakeCommitter]),
        (SyncFailed | ClosedUnsynced, _) => (mode, &[]),
        (Closed, Event::SyncFailed) => (ClosedUnsynced, &[Action::LogSyncFailure, Action::FailPending]),
        (_, Event::SyncFailed) => (SyncFailed, &[Action::LogSyncFailure, Action::FailPending]),
        (Closed, Event::WriteFailed) => (Closed, &[Action::LogFailure]),
        (Closed, _) => (Closed, &[]),
        (_, Event::Closed) => (Closed, &[Action::WakeCommitter]),
        (Running, Event::WriteFailed) => (NoRoom, &[Action::LogFailure]),
        (NoRoom | ReserveScarce, Event::Written) => (Running, &[Action::LogRecovery]),
        (NoRoom, Event::ReserveUsed { is_scarce: true }) => (ReserveScarce, &[]),
        (ReserveScarce, Event::ReserveUsed { is_scarce: false }) => (NoRoom, &[]),
        (HandedOver, Event::WriteFailed) => (SpoolFailed, &[Action::LogFailure]),
        (SpoolFailed, Event::Written) => (HandedOver, &[Action::LogRecovery]),
        (Running, Event::HandedOver) => (HandedOver, &[]),
        (NoRoom | ReserveScarce, Event::HandedOver) => (SpoolFailed, &[]),
        (HandedOver, Event::TakenBack) => (Running, &[]),
        (SpoolFailed, Event::TakenBack) => (NoRoom, &[]),
        _ => (mode, &[]),
    }
}

impl Mode {
    /// Lines may be appended.
    pub(crate) fn takes_lines(self) -> bool {
        !self.is_closed() && self != SyncFailed
    }

    /// The last write failed, and the next one may succeed.
    pub(crate) fn write_fails(self) -> bool {
        matches!(self, NoRoom | ReserveScarce | SpoolFailed)
    }

    /// A sync has failed, and nothing is written any more.
    pub(crate) fn sync_failed(self) -> bool {
        matches!(self, SyncFailed | ClosedUnsynced)
    }

    /// Another process has the journal, or is about to get it.
    pub(crate) fn is_handed_over(self) -> bool {
        matches!(self, HandedOver | SpoolFailed)
    }

    /// The journal is closed.
    pub(crate) fn is_closed(self) -> bool {
        matches!(self, Closed | ClosedUnsynced)
    }
}

/// The mode of a journal, shared by its pending lines and its writer. It is read without a lock, and changes only under
/// the lock of the pending lines.
#[derive(Clone, Debug, Default)]
pub(crate) struct SharedMode(Arc<AtomicU8>);

impl SharedMode {
    pub(crate) fn get(&self) -> Mode {
        MODES[usize::from(self.0.load(Ordering::Relaxed))]
    }

    /// Makes the transition of an event, and returns what is to be done.
    pub(super) fn step(&self, event: Event) -> &'static [Action] {
        let (mode, actions) = step(self.get(), event);
        self.0.store(mode as u8, Ordering::Relaxed);
        actions
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EVENTS: [Event; 8] = [
        Event::WriteFailed,
        Event::Written,
        Event::ReserveUsed { is_scarce: true },
        Event::ReserveUsed { is_scarce: false },
        Event::HandedOver,
        Event::TakenBack,
        Event::SyncFailed,
        Event::Closed,
    ];

    #[test]
    fn modes_change_as_in_the_table() {
        // One column for each event.
        #[rustfmt::skip]
        let table = [
            (Running, [NoRoom, Running, Running, Running, HandedOver, Running, SyncFailed, Closed]),
            (NoRoom, [NoRoom, Running, ReserveScarce, NoRoom, SpoolFailed, NoRoom, SyncFailed, Closed]),
            (ReserveScarce, [ReserveScarce, Running, ReserveScarce, NoRoom, SpoolFailed, ReserveScarce, SyncFailed,
                Closed]),
            (HandedOver, [SpoolFailed, HandedOver, HandedOver, HandedOver, HandedOver, Running, SyncFailed, Closed]),
            (SpoolFailed, [SpoolFailed, HandedOver, SpoolFailed, SpoolFailed, SpoolFailed, NoRoom, SyncFailed, Closed]),
            (SyncFailed, [SyncFailed, SyncFailed, SyncFailed, SyncFailed, SyncFailed, SyncFailed, SyncFailed,
                ClosedUnsynced]),
            (Closed, [Closed, Closed, Closed, Closed, Closed, Closed, ClosedUnsynced, Closed]),
            (ClosedUnsynced, [ClosedUnsynced; 8]),
        ];
        assert_eq!(table.map(|(mode, _)| mode), MODES);
        for (mode, expected) in table {
            assert_eq!(EVENTS.map(|event| step(mode, event).0), expected, "{mode:?}");
            assert_eq!(MODES[mode as usize], mode);
        }
    }

    #[test]
    fn outage_is_logged_once_and_a_failed_sync_fails_all_who_wait() {
        let shared = SharedMode::default();
        let actions = |event| shared.step(event);
        assert_eq!(actions(Event::WriteFailed), [Action::LogFailure]);
        assert_eq!(actions(Event::WriteFailed), []);
        assert_eq!(actions(Event::Written), [Action::LogRecovery]);
        assert_eq!(actions(Event::Written), []);
        assert_eq!(actions(Event::SyncFailed), [Action::LogSyncFailure, Action::FailPending]);
        assert_eq!(actions(Event::SyncFailed), []);
        assert_eq!(actions(Event::Closed), [Action::WakeCommitter]);
        assert!(shared.get().is_closed() && shared.get().sync_failed());
    }

    #[test]
    fn actions_follow_from_the_transitions() {
        for mode in MODES {
            for event in EVENTS {
                let is_lost = mode.sync_failed();
                let expected: &[Action] = match event {
                    Event::SyncFailed if !is_lost => &[Action::LogSyncFailure, Action::FailPending],
                    Event::Closed if !mode.is_closed() => &[Action::WakeCommitter],
                    Event::WriteFailed if !is_lost && !mode.write_fails() => &[Action::LogFailure],
                    Event::Written if mode.write_fails() => &[Action::LogRecovery],
                    _ => &[],
                };
                assert_eq!(step(mode, event).1, expected, "{mode:?} {event:?}");
            }
        }
    }

    #[test]
    fn predicates_of_modes_are_those_of_their_documentation() {
        let of = |is: fn(Mode) -> bool| MODES.into_iter().filter(|mode| is(*mode)).collect::<Vec<_>>();
        assert_eq!(of(Mode::write_fails), [NoRoom, ReserveScarce, SpoolFailed]);
        assert_eq!(of(Mode::sync_failed), [SyncFailed, ClosedUnsynced]);
        assert_eq!(of(Mode::is_handed_over), [HandedOver, SpoolFailed]);
        assert_eq!(of(Mode::is_closed), [Closed, ClosedUnsynced]);
    }

    #[test]
    fn closed_journal_and_one_whose_sync_has_failed_take_no_lines() {
        let taking = MODES.map(Mode::takes_lines);
        assert_eq!(taking, [true, true, true, true, true, false, false, false]);
    }
}
