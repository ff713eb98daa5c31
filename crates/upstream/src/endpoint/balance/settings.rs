//! Settings of balancing.

use std::collections::HashMap;
use std::sync::Arc;

/// Settings of balancing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BalanceSettings {
    /// Policy.
    pub policy: BalancePolicy,
    /// Weights of endpoints by host and port; of others 1. With several addresses of a name, each has the weight.
    pub weights: Vec<(String, u16)>,
}

impl BalanceSettings {
    /// Shares of endpoints with these hosts and ports, and weights within their entries, as parts of the largest. The
    /// weight of the configuration is multiplied by the one within the entry.
    #[allow(clippy::cast_precision_loss, reason = "a part of the requests")]
    pub(crate) fn shares<'a>(&self, endpoints: impl Iterator<Item = (&'a str, u32)> + Clone) -> Arc<[f32]> {
        // The first one of a name counts.
        let weights: HashMap<&str, u16> = self.weights.iter().rev().map(|(name, weight)| (&**name, *weight)).collect();
        let weight =
            |(authority, within): (&str, u32)| f32::from(weights.get(authority).copied().unwrap_or(1)) * within as f32;
        let most = endpoints.clone().map(weight).fold(f32::MIN_POSITIVE, f32::max);
        endpoints.map(|endpoint| weight(endpoint) / most).collect()
    }
}

/// Policy by which the endpoint of a request is chosen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BalancePolicy {
    /// The one of less cost, of two that are drawn.
    #[default]
    LeastCost,
    /// One after the other.
    RoundRobin,
    /// The same one for the same user, organization or key, while it has no more than its part of the load.
    Hash(HashBy),
}

/// Identity by which requests are assigned to endpoints.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HashBy {
    /// User.
    User,
    /// Organization.
    Org,
    /// Key; the user, for requests of sessions.
    Key,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_parts_of_the_largest_weight() {
        let settings =
            BalanceSettings { weights: vec![("a:1".into(), 4), ("b:1".into(), 2)], ..BalanceSettings::default() };
        assert_eq!(*settings.shares([("a:1", 1000), ("b:1", 1000), ("c:1", 1000)].into_iter()), [1.0, 0.5, 0.25]);
        assert_eq!(*settings.shares([("c:1", 1000), ("d:1", 1000)].into_iter()), [1.0, 1.0]);
    }

    #[test]
    fn weights_of_the_configuration_multiply_those_within_an_entry() {
        let settings = BalanceSettings { weights: vec![("a:1".into(), 2)], ..BalanceSettings::default() };
        let shares = settings.shares([("a:1", 1500), ("a:1", 500), ("b:1", 1000)].into_iter());
        assert_eq!(*shares, [1.0, 1.0 / 3.0, 1.0 / 3.0]);
    }
}
