//! Continuity of a state: compares each reading of its identity with what is remembered. Pure.
//!
//! ```text
//! remembered        found                       continuity
//! nothing           nothing                     Fresh       a new installation: an identity is made
//! nothing           A, 7 changes                Same        remembered from now on
//! A, 7 changes      A, 9 changes                Same
//! A, 9 changes      A, 8; change 9 is young     Behind      an ordinary failover: a warning, service goes on
//! A, 9 changes      A, 6; change 7 is old       Older       a restored backup: refused
//! A                 nothing                     Absent      lost: refused
//! A                 B, which replaces A         Same        B was accepted in place of A
//! A                 B                           Other       refused
//! ```
//!
//! A change is old (settled) once it was seen for as long as a failover may lose (`max_loss`), by readings: while the
//! state is away no change becomes old, so an outage before a failover makes no loss look older than it is.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use super::{Memory, StateId, StateIdentity};

/// Readings that are kept until they are old. Of more, the oldest two become one.
const MAX_RECENT: usize = 4096;

/// Relation of what a state is to what is remembered of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Continuity {
    /// There is no identity, and none is remembered.
    Fresh,
    /// It is the remembered state, with all changes.
    Same,
    /// It lacks changes that an ordinary failover may lose.
    Behind {
        /// Changes that are missing.
        lost: u64,
    },
    /// It is not to be served.
    Broken(Discontinuity),
}

/// Reason why a state is not the one that is remembered.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Discontinuity {
    /// There is no identity where one is remembered.
    #[error("it has no identity: its data was lost, or the address, the database or the prefix is another one")]
    Absent,
    /// Another identity was found.
    #[error("it is another state ({0}) than the one that this gateway has served")]
    Other(StateId),
    /// More changes are missing than a failover loses.
    #[error("it is older: the last {lost} changes by management are missing, revocations perhaps among them")]
    Older {
        /// Changes that are missing.
        lost: u64,
    },
    /// The file of the embedded state was removed or replaced while a gateway has it open.
    #[error("its file was removed or replaced while the gateway runs")]
    FileReplaced,
}

impl Discontinuity {
    /// Returns whether its records are those that were served, so that an export has them: all, or but for the last
    /// changes.
    pub fn has_records(&self) -> bool {
        matches!(self, Self::Older { .. } | Self::FileReplaced)
    }

    /// Name of the readiness check that fails, and reason in the body of `/ready`.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Absent | Self::Other(_) | Self::FileReplaced => "state_lost",
            Self::Older { .. } => "state_older",
        }
    }
}

/// Compares readings of a state's identity with what is remembered, and remembers what continues it.
///
/// - `settled` of the memory never exceeds its `changes`, and none of them ever exceeds what was found.
/// - A reading that is refused changes nothing.
#[derive(Debug)]
pub struct ContinuityTracker {
    memory: Option<Memory>,
    /// Numbers of changes that a failover may still lose, oldest first, each with the time at which it was first found.
    recent: VecDeque<(u64, Instant)>,
    max_loss: Duration,
}

impl ContinuityTracker {
    /// Remembers nothing yet. Changes that were found for the first time within `max_loss` may be lost by a failover.
    pub fn new(max_loss: Duration) -> Self {
        Self { memory: None, recent: VecDeque::new(), max_loss }
    }

    /// Remembers what an earlier process has remembered, in place of anything found so far.
    pub fn remember(&mut self, memory: Memory) {
        self.memory = Some(memory);
        self.recent.clear();
    }

    /// The memory, if there is one.
    pub fn memory(&self) -> Option<&Memory> {
        self.memory.as_ref()
    }

    /// Compares a reading of `now`.
    pub fn observe(&mut self, found: Option<&StateIdentity>, now: Instant) -> Continuity {
        let (memory, found) = match (&mut self.memory, found) {
            (None, None) => return Continuity::Fresh,
            (Some(_), None) => return Continuity::Broken(Discontinuity::Absent),
            (Some(memory), Some(found)) if found.id == memory.id => (memory, found),
            (Some(memory), Some(found)) if !found.replaces.contains(&memory.id) => {
                return Continuity::Broken(Discontinuity::Other(found.id.clone()));
            }
            // The first one, or one that was accepted in place of the remembered one.
            (_, Some(found)) => {
                self.memory = Some(Memory { id: found.id.clone(), changes: found.changes, settled: 0 });
                self.recent = VecDeque::from([(found.changes, now)]);
                self.settle(now);
                return Continuity::Same;
            }
        };
        if found.changes < memory.settled {
            return Continuity::Broken(Discontinuity::Older { lost: memory.changes - found.changes });
        }
        let lost = memory.changes.saturating_sub(found.changes);
        // Of a reading of several changes, those that are left were found when it was.
        let first_lost = self.recent.iter().find(|(number, _)| *number > found.changes).map(|(_, at)| *at);
        self.recent.retain(|(number, _)| *number <= found.changes);
        if self.recent.back().map_or(memory.settled, |(number, _)| *number) < found.changes {
            self.recent.push_back((found.changes, first_lost.unwrap_or(now)));
        }
        memory.changes = found.changes;
        self.settle(now);
        if lost > 0 { Continuity::Behind { lost } } else { Continuity::Same }
    }

    /// Notes that the state has at least so many changes, before they were found.
    pub fn note_changes(&mut self, changes: u64, now: Instant) {
        if let Some(memory) = self.memory.as_mut().filter(|memory| memory.changes < changes) {
            memory.changes = changes;
            self.recent.push_back((changes, now));
            self.settle(now);
        }
    }

    /// Notes which changes are old by now.
    fn settle(&mut self, now: Instant) {
        let Some(memory) = &mut self.memory else { unreachable!("the caller has remembered a state") };
        if self.recent.len() > MAX_RECENT {
            // Later than the truth, which refuses less.
            self.recent.pop_front();
        }
        while let Some((number, found)) = self.recent.front()
            && now.duration_since(*found) >= self.max_loss
        {
            memory.settled = *number;
            self.recent.pop_front();
        }
        debug_assert!(memory.settled <= memory.changes, "an old change is one of all");
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use domain::clock::Micros;

    const LOSS: Duration = Duration::from_secs(10);

    fn identity() -> StateIdentity {
        StateIdentity::generate().unwrap()
    }

    fn at(state: &StateIdentity, changes: u64) -> StateIdentity {
        StateIdentity { changes, ..state.clone() }
    }

    #[test]
    fn table_of_the_documentation_holds() {
        let start = Instant::now();
        let after = |seconds| start + Duration::from_secs(seconds);
        let (a, b) = (identity(), identity());
        let mut tracker = ContinuityTracker::new(LOSS);
        assert_eq!(tracker.observe(None, start), Continuity::Fresh);
        assert_eq!(tracker.observe(Some(&at(&a, 7)), start), Continuity::Same);
        assert_eq!(tracker.observe(Some(&at(&a, 9)), after(20)), Continuity::Same);
        assert_eq!(tracker.observe(Some(&at(&a, 8)), after(25)), Continuity::Behind { lost: 1 });
        assert_eq!(tracker.observe(Some(&at(&a, 9)), after(26)), Continuity::Same);
        let older = Discontinuity::Older { lost: 3 };
        assert_eq!(tracker.observe(Some(&at(&a, 6)), after(27)), Continuity::Broken(older));
        assert_eq!(tracker.observe(None, after(27)), Continuity::Broken(Discontinuity::Absent));
        let other = Discontinuity::Other(b.id.clone());
        assert_eq!(tracker.observe(Some(&b), after(27)), Continuity::Broken(other));
        assert_eq!(tracker.observe(Some(&at(&a, 9)), after(27)), Continuity::Same, "it was restored");
        let accepted = StateIdentity::accept(Some(&b), tracker.memory(), None).unwrap();
        assert_eq!(tracker.observe(Some(&accepted), after(28)), Continuity::Same);
        assert_eq!(tracker.memory().unwrap().id, accepted.id);
    }

    #[test]
    fn outage_makes_no_change_old() {
        let start = Instant::now();
        let a = identity();
        let mut tracker = ContinuityTracker::new(LOSS);
        tracker.observe(Some(&at(&a, 1)), start);
        tracker.observe(Some(&at(&a, 1)), start + LOSS);
        tracker.observe(Some(&at(&a, 2)), start + LOSS);
        let after_the_outage = start + 100 * LOSS;
        assert_eq!(tracker.observe(Some(&at(&a, 1)), after_the_outage), Continuity::Behind { lost: 1 });
    }

    #[test]
    fn memory_of_an_earlier_process_counts() {
        let now = Instant::now();
        let a = identity();
        let mut tracker = ContinuityTracker::new(LOSS);
        tracker.remember(Memory { id: a.id.clone(), changes: 9, settled: 7 });
        let older = Continuity::Broken(Discontinuity::Older { lost: 3 });
        assert_eq!(tracker.observe(Some(&at(&a, 6)), now), older);
        assert_eq!(tracker.observe(Some(&at(&a, 7)), now), Continuity::Behind { lost: 2 });
    }

    /// An event of a history.
    #[derive(Clone, Copy, Debug)]
    enum Event {
        /// A change, so many milliseconds later.
        Change(u64),
        /// A reading.
        Read(u64),
        /// The loss of the changes of the last so many milliseconds, then a reading.
        Lose(u64),
    }

    fn events() -> impl Strategy<Value = Vec<Event>> {
        let event = prop_oneof![
            (0..4000_u64).prop_map(Event::Change),
            (0..4000_u64).prop_map(Event::Read),
            (0..30_000_u64).prop_map(Event::Lose),
        ];
        proptest::collection::vec(event, 1..60)
    }

    proptest! {
        /// A loss of changes that are all younger than the bound is never refused; one of a change that was read, and
        /// read again after the bound, always is.
        #[test]
        fn loss_is_refused_exactly_beyond_the_bound(events in events()) {
            let start = Instant::now();
            let a = identity();
            let mut tracker = ContinuityTracker::new(LOSS);
            tracker.observe(Some(&at(&a, 0)), start);
            let mut now = start;
            // Times of the changes that the state has; the first and last time at which each was read.
            let mut made: Vec<Instant> = Vec::new();
            let mut read: Vec<(Instant, Instant)> = Vec::new();
            for event in events {
                match event {
                    Event::Change(pause) => {
                        now += Duration::from_millis(pause);
                        made.push(now);
                    }
                    Event::Read(pause) => {
                        now += Duration::from_millis(pause);
                        let continuity = tracker.observe(Some(&at(&a, made.len() as u64)), now);
                        prop_assert_eq!(continuity, Continuity::Same);
                        read.iter_mut().for_each(|(_, last)| *last = now);
                        read.resize(made.len(), (now, now));
                    }
                    Event::Lose(window) => {
                        let window = Duration::from_millis(window);
                        let kept = made.iter().filter(|time| now.duration_since(**time) > window).count();
                        let continuity = tracker.observe(Some(&at(&a, kept as u64)), now);
                        let lost_read = read.get(kept);
                        if made[kept..].iter().all(|time| now.duration_since(*time) < LOSS) {
                            prop_assert!(!matches!(continuity, Continuity::Broken(_)), "{continuity:?}");
                        }
                        if lost_read.is_some_and(|(first, last)| last.duration_since(*first) >= LOSS) {
                            prop_assert!(matches!(continuity, Continuity::Broken(_)), "{continuity:?}");
                        }
                        if matches!(continuity, Continuity::Broken(_)) {
                            // Restored.
                            continue;
                        }
                        made.truncate(kept);
                        read.truncate(kept);
                    }
                }
            }
        }
    }

    #[test]
    fn accepted_state_counts_on_and_names_at_most_so_many() {
        let mut state = identity();
        for _ in 0..40 {
            let memory = Memory { id: state.id.clone(), changes: 7, settled: 7 };
            state = StateIdentity::accept(Some(&state), Some(&memory), None).unwrap();
        }
        assert!(state.replaces.len() <= 16 && state.changes == 7);
        let text = state.replaces_text();
        assert_eq!(StateIdentity::parse_replaces(&text), state.replaces);
        assert_eq!(state.changed, Micros(0));
    }
}
