//! Removal of segments by age, so that no single reading of a clock destroys data.
//!
//! - The present is the smallest of the process's clock, the wall clock and the time of the newest record: a clock that
//!   is ahead, or was ahead and is corrected slowly, makes no segment old. A journal without new records loses none.
//! - A segment must be too old at two looks that are [`CONFIRMATION`] of steady time apart, and at
//!   all looks in between.
//! - At most a tenth of the segments go within [`WINDOW`]: an operator who reads the log can stop the
//!   gateway before the rest.
//!
//! All of it is arithmetic over the readings; `retention` takes them.

use std::collections::BTreeMap;
use std::time::{Duration, UNIX_EPOCH};

use crate::audit::format::segment::SegmentFile;
use domain::clock::Micros;

/// Steady time for which a segment stays too old before it is removed: longer than a wrong clock goes unnoticed.
const CONFIRMATION: Duration = Duration::from_secs(3600);
/// Time within which at most a tenth of the segments is removed.
const WINDOW: Duration = Duration::from_secs(60);

/// Readings of the clocks at one look.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Look {
    /// The process's clock, which follows the wall clock.
    pub(crate) clock: Micros,
    /// The wall clock.
    pub(crate) wall: Micros,
    /// Time of the newest record of the journal.
    pub(crate) newest: Micros,
    /// The monotonic time.
    pub(crate) steady: Micros,
}

/// Segments that are too old, and the removals of the present window. It is forgotten when the process ends.
#[derive(Debug, Default)]
pub(crate) struct AgeLimit {
    /// Segments that were too old at all looks since a steady time.
    too_old: BTreeMap<u64, Micros>,
    /// Steady time at which the present window began.
    window: Micros,
    /// Segments that may still be removed in it.
    left: usize,
}

impl Look {
    /// The age of a segment: time since its last line was written.
    pub(crate) fn age(self, segment: &SegmentFile) -> Duration {
        let present = self.clock.min(self.wall).min(self.newest);
        let written = segment.modified.duration_since(UNIX_EPOCH).unwrap_or_default();
        Duration::from_micros(present.0).saturating_sub(written)
    }
}

impl AgeLimit {
    /// Returns the first segment that age does not remove at this look. `segments` are all segments, oldest first.
    pub(crate) fn first_kept(&mut self, segments: &[SegmentFile], limit: Duration, look: Look) -> u64 {
        let too_old = segments.iter().take_while(|segment| look.age(segment) > limit);
        let since = |number| self.too_old.get(&number).copied().unwrap_or(look.steady);
        self.too_old = too_old.map(|segment| (segment.number, since(segment.number))).collect();
        if look.steady.since(self.window) >= micros(WINDOW) {
            // One at least: also a journal of a few segments loses those that are too old.
            (self.window, self.left) = (look.steady, (segments.len() / 10).max(1));
        }
        let is_confirmed = |since: Micros| look.steady.since(since) >= micros(CONFIRMATION);
        let confirmed = segments
            .iter()
            .take_while(|segment| self.too_old.get(&segment.number).is_some_and(|since| is_confirmed(*since)));
        confirmed.take(self.left).last().map_or(0, |segment| segment.number + 1)
    }

    /// Notes that a segment was removed because of its age.
    pub(crate) fn note_removal(&mut self) {
        self.left = self.left.saturating_sub(1);
    }
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SECOND: u64 = 1_000_000;
    const HOUR: u64 = 3600 * SECOND;
    const DAY: u64 = 24 * HOUR;
    const START: u64 = 1_800_000_000 * SECOND;
    const LIMIT: Duration = Duration::from_secs(30 * 86_400);

    /// Segments that were written so many days before the start.
    fn segments(days: impl IntoIterator<Item = u64>) -> Vec<SegmentFile> {
        let of = |(number, days): (usize, u64)| SegmentFile {
            number: number as u64 + 1,
            is_compressed: true,
            size: 10,
            modified: UNIX_EPOCH + Duration::from_micros(START - days * DAY),
        };
        days.into_iter().enumerate().map(of).collect()
    }

    /// A look with all clocks right, so many microseconds after the start.
    fn right(later: u64) -> Look {
        let time = Micros(START + later);
        Look { clock: time, wall: time, newest: time, steady: Micros(later) }
    }

    #[test]
    fn segment_goes_when_it_was_too_old_for_an_hour() {
        let segments = segments([31, 29]);
        let mut limit = AgeLimit::default();
        assert_eq!(limit.first_kept(&segments, LIMIT, right(0)), 0);
        assert_eq!(limit.first_kept(&segments, LIMIT, right(HOUR - 1)), 0);
        assert_eq!(limit.first_kept(&segments, LIMIT, right(HOUR)), 2);
    }

    #[test]
    fn one_look_at_which_a_segment_is_young_begins_the_hour_anew() {
        let segments = segments([29, 28]);
        let mut limit = AgeLimit::default();
        let ahead = |later| {
            let time = Micros(START + later + 60 * DAY);
            Look { clock: time, wall: time, newest: time, steady: Micros(later) }
        };
        assert_eq!(limit.first_kept(&segments, LIMIT, ahead(0)), 0);
        assert_eq!(limit.first_kept(&segments, LIMIT, right(HOUR / 2)), 0);
        assert_eq!(limit.first_kept(&segments, LIMIT, ahead(HOUR)), 0);
        assert_eq!(limit.first_kept(&segments, LIMIT, ahead(2 * HOUR)), 2);
    }

    #[test]
    fn each_clock_alone_keeps_a_segment() {
        let segments = segments([29]);
        let ahead = Micros(START + 60 * DAY);
        let looks: [fn(Look, Micros) -> Look; 4] = [
            |look, ahead| Look { clock: ahead, wall: ahead, ..look },
            |look, ahead| Look { clock: ahead, newest: ahead, ..look },
            |look, ahead| Look { wall: ahead, newest: ahead, ..look },
            |look, ahead| Look { clock: ahead, wall: ahead, newest: Micros(0), ..look },
        ];
        for (number, wrong) in looks.into_iter().enumerate() {
            let mut limit = AgeLimit::default();
            for hours in 0..20 {
                let look = wrong(right(hours * HOUR), ahead);
                assert_eq!(limit.first_kept(&segments, LIMIT, look), 0, "look {number}");
            }
        }
    }

    #[test]
    fn tenth_of_the_segments_goes_within_a_minute() {
        let mut segments = segments((31..131).rev());
        let mut limit = AgeLimit::default();
        limit.first_kept(&segments, LIMIT, right(0));
        let mut left = Vec::new();
        for second in 0..180 {
            let first = limit.first_kept(&segments, LIMIT, right(HOUR + second * SECOND));
            while segments.first().is_some_and(|segment| segment.number < first) {
                segments.remove(0);
                limit.note_removal();
            }
            left.push(segments.len());
        }
        assert_eq!((left[0], left[59], left[60], left[119], left[120]), (90, 90, 81, 81, 73));
    }

    proptest! {
        /// The wall clock is wrong for less than an hour at a time, by years; requests go on, with
        /// the time that it has.
        #[test]
        fn clock_that_is_wrong_for_less_than_an_hour_removes_nothing(
            spells in prop::collection::vec((1..59_u64, 1..60_u64, 1..4000_u64), 1..20),
        ) {
            let segments = segments([29, 20, 5, 0]);
            let mut limit = AgeLimit::default();
            let mut minute = 0;
            for (wrong, correct, days) in spells {
                for at in 0..wrong + correct {
                    let right = right(minute * 60 * SECOND);
                    let ahead = Micros(right.clock.0 + if at < wrong { days * DAY } else { 0 });
                    let look = Look { clock: ahead, wall: ahead, newest: ahead, ..right };
                    // The property is about segments that are young by the right time.
                    let young = segments.iter().filter(|segment| right.age(segment) <= LIMIT).count();
                    let first = limit.first_kept(&segments[segments.len() - young..], LIMIT, look);
                    prop_assert_eq!(first, 0, "minute {}", minute);
                    minute += 1;
                }
            }
        }
    }
}
