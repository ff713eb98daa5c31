//! Clock discipline: how the process's clock follows the wall clock.
//!
//! - **Ahead** (the wall clock jumped ahead, or the machine was suspended): the clock jumps with it once the jump has
//!   lasted for [`CONFIRMATION`]. A wall clock that is wrong for a moment is not followed at all.
//! - **Behind** (the wall clock was set back, or a jump that was followed is undone): the clock goes on at half speed
//!   until both agree. It never steps back, because order and time-outs depend on it, and it never stands still,
//!   because then no bucket would refill and Last Used would not move. What a jump ahead let flow into buckets is so
//!   repaid: over jump and slew together, exactly the tokens of the real time flow in.
//! - A difference of less than [`TOLERANCE`] is left alone.
//!
//! All of it is arithmetic over two readings. `process_clock` takes the readings.

/// Microseconds of difference that are left alone: what the wall clock's own corrections and late readings amount to.
pub(super) const TOLERANCE: u64 = 100_000;
/// Microseconds that a jump ahead has to last: longer than a wrong reply of a time server goes uncorrected, and short
/// against everything that is measured in wall time.
pub(super) const CONFIRMATION: u64 = 10_000_000;

/// The clock as a function of the monotonic time, both in microseconds.
///
/// - Monotonic: a later monotonic time never gives an earlier clock, across changes of the discipline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Discipline {
    /// The clock at `since`.
    base: u64,
    /// The monotonic time at which the present rate began.
    since: u64,
    /// True while the clock runs at half speed.
    slewing: bool,
    /// The jump ahead that is not followed yet: the monotonic time at which it was first seen.
    jumped: Option<u64>,
}

/// A change that the log tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Correction {
    /// The clock jumped ahead by so many microseconds.
    Jumped(u64),
    /// The clock is so many microseconds ahead of the wall clock, and goes on at half speed.
    Slewing(u64),
    /// The clock has met the wall clock again.
    Met,
}

impl Discipline {
    /// A clock that shows `wall` at the monotonic time 0.
    pub(super) fn new(wall: u64) -> Self {
        Self { base: wall, since: 0, slewing: false, jumped: None }
    }

    /// The clock at a monotonic time.
    pub(super) fn at(self, monotonic: u64) -> u64 {
        let elapsed = monotonic.saturating_sub(self.since);
        self.base.saturating_add(if self.slewing { elapsed / 2 } else { elapsed })
    }

    /// The clock minus the monotonic time; `None` while that is not constant.
    pub(super) fn offset(self) -> Option<i64> {
        let offset = i64::try_from(self.base).ok()?.checked_sub(i64::try_from(self.since).ok()?)?;
        (!self.slewing).then_some(offset)
    }

    /// Compares the clock with the wall clock. Returns the discipline from `monotonic` on.
    #[must_use]
    pub(super) fn follow(self, wall: u64, monotonic: u64) -> (Self, Option<Correction>) {
        let clock = self.at(monotonic);
        let ahead = wall.saturating_sub(clock);
        let behind = clock.saturating_sub(wall);
        if ahead > TOLERANCE {
            return self.follow_ahead(wall, monotonic);
        }
        let steady = Self { jumped: None, ..self };
        match (self.slewing, behind > TOLERANCE) {
            (false, true) => {
                let slewing = Self { base: clock, since: monotonic, slewing: true, jumped: None };
                (slewing, Some(Correction::Slewing(behind)))
            }
            (true, _) if behind == 0 => {
                let met = Self { base: clock, since: monotonic, slewing: false, jumped: None };
                (met, Some(Correction::Met))
            }
            _ => (steady, None),
        }
    }

    /// Follows a wall clock that is ahead, once it has been for long enough.
    fn follow_ahead(self, wall: u64, monotonic: u64) -> (Self, Option<Correction>) {
        let clock = self.at(monotonic);
        // A clock that was slewing goes on at full speed from here: it is not ahead any more.
        let full_speed = Self { base: clock, since: monotonic, slewing: false, jumped: self.jumped };
        let jumped = self.jumped.unwrap_or(monotonic);
        if monotonic - jumped < CONFIRMATION {
            return (Self { jumped: Some(jumped), ..full_speed }, None);
        }
        (Self { base: wall, jumped: None, ..full_speed }, Some(Correction::Jumped(wall - clock)))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SECOND: u64 = 1_000_000;
    const HOUR: u64 = 3600 * SECOND;
    const START: u64 = 1_800_000_000 * SECOND;

    /// Follows a wall clock that differs from the true time by `wrong(true seconds)`, once a second.
    fn followed(seconds: u64, wrong: impl Fn(u64) -> i64) -> (Discipline, Vec<(u64, Correction)>) {
        let mut discipline = Discipline::new(START);
        let mut corrections = Vec::new();
        for second in 0..=seconds {
            let wall = (START + second * SECOND).strict_add_signed(wrong(second));
            let (next, correction) = discipline.follow(wall, second * SECOND);
            corrections.extend(correction.map(|correction| (second, correction)));
            discipline = next;
        }
        (discipline, corrections)
    }

    #[test]
    fn jump_of_a_moment_is_not_followed() {
        let hour = HOUR as i64;
        let (discipline, corrections) = followed(60, |second| if (10..18).contains(&second) { hour } else { 0 });
        assert_eq!((discipline.at(60 * SECOND), corrections), (START + 60 * SECOND, vec![]));
    }

    #[test]
    fn jump_that_lasts_is_followed_and_followed_back_by_slewing() {
        let hour = HOUR as i64;
        let wrong = |second| if (10..100).contains(&second) { hour } else { 0 };
        let (during, corrections) = followed(60, wrong);
        assert_eq!(corrections, [(20, Correction::Jumped(HOUR))]);
        assert_eq!(during.at(60 * SECOND), START + 60 * SECOND + HOUR);
        let (after, corrections) = followed(8000, wrong);
        assert_eq!(corrections[1], (100, Correction::Slewing(HOUR)));
        assert!(matches!(corrections[2], (7300..=7301, Correction::Met)), "{corrections:?}");
        assert!(after.at(8000 * SECOND).abs_diff(START + 8000 * SECOND) <= SECOND);
        let (slewing, _) = followed(3700, wrong);
        // Never still: half of the time goes by.
        assert_eq!(slewing.at(3710 * SECOND) - slewing.at(3700 * SECOND), 5 * SECOND);
    }

    #[test]
    fn suspend_of_the_machine_is_followed() {
        // The monotonic time stands still meanwhile.
        let (discipline, corrections) = followed(60, |second| if second >= 30 { 8 * HOUR as i64 } else { 0 });
        assert_eq!(corrections, [(40, Correction::Jumped(8 * HOUR))]);
        assert_eq!(discipline.at(60 * SECOND), START + 60 * SECOND + 8 * HOUR);
    }

    proptest! {
        #[test]
        fn clock_never_steps_back(
            steps in prop::collection::vec((0..30 * SECOND, -2 * HOUR as i64..2 * HOUR as i64, 0..4_u8), 1..200),
        ) {
            let mut discipline = Discipline::new(START);
            let mut monotonic = 0;
            let mut wrong = 0;
            let mut last = START;
            for (pause, jump, jumps) in steps {
                monotonic += pause;
                prop_assert!(discipline.at(monotonic) >= last);
                last = discipline.at(monotonic);
                wrong = if jumps == 0 { jump } else { wrong };
                (discipline, _) = discipline.follow((START + monotonic).strict_add_signed(wrong), monotonic);
                prop_assert!(discipline.at(monotonic) >= last);
                last = discipline.at(monotonic);
                let offset = discipline.offset().map(|offset| monotonic.strict_add_signed(offset));
                prop_assert!(offset.is_none_or(|clock| clock == last));
            }
        }

        #[test]
        fn clock_meets_a_wall_clock_that_was_set_back(back in TOLERANCE + 1..HOUR) {
            let set_back = |second| if second >= 5 { -(back as i64) } else { 0 };
            let seconds = 2 * back / SECOND + 20;
            let (discipline, _) = followed(seconds, set_back);
            let wall = START + seconds * SECOND - back;
            prop_assert!(discipline.at(seconds * SECOND).abs_diff(wall) <= SECOND);
        }
    }
}
