//! Power of two choices, as a pure function.

use super::random::Random;

/// Draws among many of which at least half can be taken, before the shares of all are added up. 16 fail once in 65,536.
const DRAWS: usize = 16;
/// Cost of the second endpoint, in parts of the first one's, at which the second one is taken.
const CLEARLY_LESS: f32 = 2.0 / 3.0;

/// Chooses one of `count` endpoints: of two that are drawn by their `share`, the one of less `cost`. A share is from
/// 0, which excludes the endpoint, to 1. None when all are excluded.
pub(crate) fn choose_of_two(
    count: usize,
    random: &Random,
    share: impl Fn(usize) -> f32,
    cost: impl Fn(usize) -> f32,
) -> Option<usize> {
    let first = draw(count, random, &share)?;
    let Some(second) = draw(count, random, |index| if index == first { 0.0 } else { share(index) }) else {
        return Some(first);
    };
    Some(if cost(second) <= cost(first) * CLEARLY_LESS { second } else { first })
}

/// Draws an endpoint by its share.
fn draw(count: usize, random: &Random, share: impl Fn(usize) -> f32) -> Option<usize> {
    for _ in 0..DRAWS {
        let index = random.below(count);
        let share = share(index);
        if share >= 1.0 || share > random.unit() {
            return Some(index);
        }
    }
    let total: f32 = (0..count).map(&share).sum();
    let mut rest = random.unit() * total;
    let mut candidates = (0..count).filter(|index| share(*index) > 0.0);
    let last = candidates.clone().next_back();
    candidates
        .find(|index| {
            rest -= share(*index);
            rest < 0.0
        })
        .or(last)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Parts of 40,000 choices.
    fn parts(shares: &[f32], costs: &[f32]) -> Vec<f32> {
        let random = Random::new(7);
        let mut counts = vec![0_u16; shares.len()];
        for _ in 0..40_000 {
            counts[choose_of_two(shares.len(), &random, |i| shares[i], |i| costs[i]).unwrap()] += 1;
        }
        counts.into_iter().map(|count| f32::from(count) / 40_000.0).collect()
    }

    fn assert_near(parts: &[f32], expected: &[f32]) {
        let far = parts.iter().zip(expected).any(|(part, expected)| (part - expected).abs() > 0.02);
        assert!(!far, "{parts:?} instead of {expected:?}");
    }

    #[test]
    fn equal_endpoints_have_equal_parts_although_their_costs_differ_a_little() {
        assert_near(&parts(&[1.0; 3], &[1.0, 1.1, 1.3]), &[0.333; 3]);
    }

    #[test]
    fn endpoint_that_costs_most_has_nothing() {
        assert_near(&parts(&[1.0; 3], &[1.0, 1.0, 2.0]), &[0.5, 0.5, 0.0]);
    }

    #[test]
    fn shares_are_parts_while_costs_are_equal() {
        assert_near(&parts(&[1.0, 0.1], &[1.0, 1.0]), &[0.909, 0.091]);
        assert_near(&parts(&[1.0, 0.5, 0.5], &[1.0; 3]), &[0.5, 0.25, 0.25]);
    }

    proptest! {
        #[test]
        fn only_candidates_are_chosen(
            shares in prop::collection::vec(prop::sample::select(vec![0.0_f32, 0.001, 0.5, 1.0]), 1..40),
            seed: u64,
        ) {
            let random = Random::new(seed);
            match choose_of_two(shares.len(), &random, |index| shares[index], |_| 1.0) {
                Some(chosen) => prop_assert!(shares[chosen] > 0.0),
                None => prop_assert!(shares.iter().all(|share| *share == 0.0)),
            }
        }
    }
}
