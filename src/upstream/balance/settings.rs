//! Settings of balancing.

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
    /// Shares of endpoints with these hosts and ports, as parts of the largest.
    pub(in crate::upstream) fn shares<'a>(&self, authorities: impl Iterator<Item = &'a str> + Clone) -> Arc<[f32]> {
        let weight = |authority: &str| {
            let found = self.weights.iter().find(|(name, _)| name == authority);
            f32::from(found.map_or(1, |(_, weight)| *weight))
        };
        let most = authorities.clone().map(weight).fold(f32::MIN_POSITIVE, f32::max);
        authorities.map(|authority| weight(authority) / most).collect()
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
        assert_eq!(*settings.shares(["a:1", "b:1", "c:1"].into_iter()), [1.0, 0.5, 0.25]);
        assert_eq!(*settings.shares(["c:1", "d:1"].into_iter()), [1.0, 1.0]);
    }
}
