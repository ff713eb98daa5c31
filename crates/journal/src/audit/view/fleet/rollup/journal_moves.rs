//! Moves of the journals of all gateways since the last refresh, and their meaning for sums of records.

use std::time::Duration;

use uuid::Uuid;

use crate::audit::format::segment::Point;
use crate::audit::view::fleet::rows::JournalRow;
use domain::clock::Micros;

/// Time after which all records of a moment are delivered with the journal's progress: uses that had just begun, and
/// refusals that are written together.
const SETTLING: Duration = Duration::from_secs(60);
/// Time since its last delivery in which a journal is waited for.
const DELIVERS_WITHIN: Duration = Duration::from_secs(60);
/// Longest time by which the records that are added up are behind for a journal that is waited for.
const WAITED_FOR: Duration = Duration::from_secs(15 * 60);

/// A journal, and up to which place and time it was delivered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct JournalPlace {
    pub(super) journal: Uuid,
    pub(super) gateway: String,
    pub(super) position: Point,
    pub(super) complete_until: Micros,
}

impl JournalPlace {
    /// The place of a journal as PostgreSQL has it.
    pub(super) fn of(row: JournalRow) -> Self {
        let JournalRow { journal, gateway, position, complete_until, .. } = row;
        Self { journal, gateway, position, complete_until }
    }
}

/// The moves of all journals.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Moves {
    /// All that was delivered is later than the records that are added up.
    Forward,
    /// Records from this time on may have come that are earlier than what is added up.
    Late(Micros),
    /// A journal has less than before, or is gone: this is another database, or an older state of it.
    Backward,
}

/// Compares journals with those of before, where everything before `until` is added up.
pub(super) fn moves(known: &[JournalPlace], found: &[JournalPlace], until: Micros) -> Moves {
    let same =
        |one: &JournalPlace, other: &JournalPlace| (one.journal, &one.gateway) == (other.journal, &other.gateway);
    let has_less = |known: &JournalPlace| {
        found.iter().find(|found| same(known, found)).is_none_or(|found| found.position < known.position)
    };
    if known.iter().any(has_less) {
        return Moves::Backward;
    }
    let may_have = |found: &JournalPlace| match known.iter().find(|known| same(known, found)) {
        Some(known) if known == found => None,
        Some(known) => Some(known.complete_until.before(SETTLING)),
        // A journal that is new here, or a gateway with another name.
        None => Some(Micros(0)),
    };
    let first = found.iter().filter_map(may_have).min();
    first.filter(|first| *first < until).map_or(Moves::Forward, Moves::Late)
}

/// The time before which all records are there, of the journals that deliver by the database's clock: the others are
/// late when they come back. `journals` are times up to which they are complete, and of their last deliveries.
pub(super) fn settled_until(journals: &[(Micros, Micros)], now: Micros) -> Micros {
    let complete = |delivers: bool| {
        let is_meant = move |updated: Micros| (updated >= now.before(DELIVERS_WITHIN)) == delivers;
        journals.iter().filter(move |(_, updated)| is_meant(*updated)).map(|(complete, _)| *complete)
    };
    let until = match complete(true).min() {
        Some(first) => first.max(now.before(WAITED_FOR)),
        None => complete(false).max().unwrap_or_default(),
    };
    until.min(now).before(SETTLING)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: u64 = 60_000_000;

    fn place(journal: u128, gateway: &str, minute: u64) -> JournalPlace {
        let position = Point { segment: 1, offset: minute };
        let complete_until = Micros(minute * MINUTE);
        JournalPlace { journal: Uuid::from_u128(journal), gateway: gateway.to_owned(), position, complete_until }
    }

    #[test]
    fn records_that_come_late_are_told_from_those_that_follow() {
        let known = [place(1, "a", 100), place(2, "b", 50)];
        let until = Micros(99 * MINUTE);
        let moves = |found: &[JournalPlace]| moves(&known, found, until);
        assert_eq!(moves(&known), Moves::Forward);
        assert_eq!(moves(&[place(1, "a", 200), place(2, "b", 50)]), Moves::Forward);
        // The gateway b was left behind, and delivers again.
        assert_eq!(moves(&[place(1, "a", 200), place(2, "b", 51)]), Moves::Late(Micros(49 * MINUTE)));
        // Another disk, and another name: their records may be from any time.
        for new in [place(3, "a", 101), place(1, "c", 101)] {
            assert_eq!(moves(&[known.to_vec(), vec![new]].concat()), Moves::Late(Micros(0)));
        }
        assert_eq!(moves(&[place(1, "a", 99), place(2, "b", 50)]), Moves::Backward);
        assert_eq!(moves(&known[..1]), Moves::Backward);
    }

    #[test]
    fn no_clock_but_that_of_the_database_says_what_is_settled() {
        let now = 1000;
        let settled = |journals: &[(u64, u64)]| {
            let journals: Vec<_> = journals.iter().map(|(a, b)| (Micros(a * MINUTE), Micros(b * MINUTE))).collect();
            settled_until(&journals, Micros(now * MINUTE)).0 / MINUTE
        };
        assert_eq!(settled(&[(now, now), (now - 2, now)]), now - 3, "the last one that delivers");
        assert_eq!(settled(&[(now, now), (now - 2, now - 3)]), now - 1, "one that does not deliver is not waited for");
        assert_eq!(settled(&[(now, now), (now - 99, now)]), now - 16, "nor one that is far behind");
        assert_eq!(settled(&[(now + 99, now)]), now - 1, "a clock that is ahead");
        assert_eq!(settled(&[(now - 99, now - 98), (now - 50, now - 50)]), now - 51, "none delivers");
    }
}
