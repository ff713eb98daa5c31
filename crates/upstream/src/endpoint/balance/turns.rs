//! Endpoints one after the other.

use std::cell::Cell;

use super::random::Random;

/// Turns of one worker.
#[derive(Debug, Default)]
pub(crate) struct Turns(Cell<usize>);

impl Turns {
    /// Chooses the next of `count` endpoints. One with a `share` below 1 misses turns, with 0 all of them. None when
    /// all are excluded.
    pub(crate) fn choose(&self, count: usize, random: &Random, share: impl Fn(usize) -> f32) -> Option<usize> {
        // A second round finds those that missed their turn by chance; then any is better than none.
        let start = self.0.get();
        let turns = || (0..count).map(move |turn| (start + turn) % count);
        let takes = |index: &usize| share(*index) >= 1.0 || share(*index) > random.unit();
        let chosen = turns().find(takes).or_else(|| turns().find(|index| share(*index) > 0.0))?;
        self.0.set(chosen + 1);
        Some(chosen)
    }

    /// Chooses, and gives the turn back: a retry is none, or an endpoint that fails would get the first try of every
    /// request.
    pub(crate) fn without_turn<T>(&self, choose: impl FnOnce() -> T) -> T {
        let turn = self.0.get();
        let chosen = choose();
        self.0.set(turn);
        chosen
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn turns_go_round_and_leave_out_what_is_excluded() {
        let turns = Turns::default();
        let random = Random::new(1);
        let shares = [1.0, 0.0, 1.0];
        let chosen: Vec<_> = (0..4).map(|_| turns.choose(3, &random, |index| shares[index]).unwrap()).collect();
        assert_eq!(chosen, [0, 2, 0, 2]);
        assert_eq!(turns.choose(3, &random, |_| 0.0), None);
    }

    #[test]
    fn choice_without_a_turn_changes_none() {
        let turns = Turns::default();
        let random = Random::new(1);
        let chosen: Vec<_> = (0..4)
            .map(|_| {
                assert_eq!(turns.without_turn(|| turns.choose(2, &random, |index| [0.0, 1.0][index])), Some(1));
                turns.choose(2, &random, |_| 1.0).unwrap()
            })
            .collect();
        assert_eq!(chosen, [0, 1, 0, 1]);
    }

    #[test]
    fn share_is_the_part_of_turns() {
        let turns = Turns::default();
        let random = Random::new(1);
        let shares = [1.0, 0.5];
        let second = (0..10_000).filter(|_| turns.choose(2, &random, |index| shares[index]) == Some(1)).count();
        assert!((3000..3700).contains(&second), "{second}");
    }
}
