//! Weights of the addresses of a source, by those of its SRV records (RFC 2782).
//!
//! - The targets have the requests in parts of their weights. The addresses of a target have equal parts of its own.
//! - A weight of 0 stands for a very small part beside larger ones. When all are 0, the targets have equal parts.
//! - No address has less than a thousandth of the largest part: the range of the configured weights, too. So a typing
//!   error in a zone leaves no endpoint without requests, by which its state would be seen.
//! - The mean of a source is [`EQUAL_WEIGHT`]: its records divide its own requests, and take none from other sources.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

use crate::settings::EQUAL_WEIGHT;

/// Largest part in least parts.
const MAX_SKEW: f64 = 1000.0;

/// Weights of addresses.
pub(super) type Weights = BTreeMap<SocketAddr, u32>;

/// Target of SRV records, or a host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Target {
    /// Weight among the targets; the same for all where there are none.
    pub(super) weight: u32,
    pub(super) addresses: BTreeSet<SocketAddr>,
}

/// Weights of the addresses that are used, each of which one of the targets has.
pub(super) fn weights(targets: &[Target], used: &BTreeSet<SocketAddr>) -> Weights {
    let is_unweighted = targets.iter().all(|target| target.weight == 0);
    let mut parts: BTreeMap<SocketAddr, f64> = BTreeMap::new();
    for Target { weight, addresses } in targets {
        let weight = if is_unweighted { 1 } else { *weight };
        let addresses: Vec<_> = addresses.intersection(used).collect();
        for address in &addresses {
            *parts.entry(**address).or_default() += f64::from(weight) / count(addresses.len());
        }
    }
    let largest = parts.values().copied().fold(0.0, f64::max);
    // All addresses in use have a weight of 0: the others are of a family that cannot be reached.
    let bounded = |part: f64| if largest > 0.0 { part.max(largest / MAX_SKEW) } else { 1.0 };
    let mean = parts.values().copied().map(bounded).sum::<f64>() / count(parts.len());
    parts.into_iter().map(|(address, part)| (address, in_thousandths(bounded(part) / mean))).collect()
}

#[allow(clippy::cast_precision_loss, reason = "a number of addresses")]
fn count(addresses: usize) -> f64 {
    addresses as f64
}

#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "positive, and bounded by the number of addresses"
)]
fn in_thousandths(part: f64) -> u32 {
    ((part * f64::from(EQUAL_WEIGHT)).round() as u32).max(1)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn address(number: usize) -> SocketAddr {
        format!("10.0.{}.{}:81", number / 250, number % 250).parse().unwrap()
    }

    /// Targets with these weights, each with the addresses of these numbers.
    fn targets(targets: &[(u32, &[usize])]) -> Vec<Target> {
        let target = |(weight, numbers): &(u32, &[usize])| Target {
            weight: *weight,
            addresses: numbers.iter().copied().map(address).collect(),
        };
        targets.iter().map(target).collect()
    }

    fn all(targets: &[Target]) -> BTreeSet<SocketAddr> {
        targets.iter().flat_map(|target| target.addresses.iter().copied()).collect()
    }

    fn of(given: &[(u32, &[usize])]) -> Vec<u32> {
        let targets = targets(given);
        weights(&targets, &all(&targets)).into_values().collect()
    }

    #[test]
    fn requests_are_divided_by_weight_and_then_among_the_addresses_of_a_target() {
        assert_eq!(of(&[(3, &[1]), (1, &[2])]), [1500, 500]);
        assert_eq!(of(&[(30, &[1, 2]), (15, &[3])]), [1000; 3]);
        assert_eq!(of(&[(1, &[1, 2]), (1, &[2])]), [500, 1500], "an address of two targets has both parts");
    }

    #[test]
    fn weight_of_zero_is_the_least_part_beside_others_and_an_equal_one_without() {
        assert_eq!(of(&[(0, &[1]), (0, &[2])]), [1000; 2]);
        assert_eq!(of(&[(0, &[1]), (65_535, &[2])]), [2, 1998]);
        assert_eq!(of(&[(1, &[1]), (65_535, &[2])]), [2, 1998], "never less than a thousandth");
        assert_eq!(of(&[]), [0; 0]);
    }

    #[test]
    fn address_that_is_not_used_leaves_its_part_to_the_others_of_its_target() {
        let targets = targets(&[(1, &[1, 2]), (1, &[3])]);
        let used = [address(1), address(3)].into();
        assert_eq!(weights(&targets, &used).into_values().collect::<Vec<_>>(), [1000; 2]);
        let only_zero = [Target { weight: 0, ..targets[0].clone() }, targets[1].clone()];
        assert_eq!(weights(&only_zero, &[address(1)].into()).into_values().collect::<Vec<_>>(), [1000]);
    }

    proptest! {
        #[test]
        fn weights_are_bounded_and_their_mean_is_an_equal_part(
            given in prop::collection::vec((0..=65_535_u32, prop::collection::btree_set(0..60_usize, 1..4)), 1..40),
        ) {
            let targets: Vec<Target> = given
                .iter()
                .map(|(weight, numbers)| Target { weight: *weight, addresses: numbers.iter().copied().map(address)
                    .collect() })
                .collect();
            let weights = weights(&targets, &all(&targets));
            prop_assert_eq!(weights.keys().copied().collect::<BTreeSet<_>>(), all(&targets));
            let least = *weights.values().min().unwrap();
            let most = *weights.values().max().unwrap();
            // Rounded to a thousandth of the mean each.
            prop_assert!(f64::from(most) <= MAX_SKEW * (f64::from(least) + 0.5) + 0.5, "{least} to {most}");
            let mean = weights.values().map(|weight| f64::from(*weight)).sum::<f64>() / count(weights.len());
            prop_assert!((mean - f64::from(EQUAL_WEIGHT)).abs() <= 1.0, "{}", mean);
        }
    }
}
