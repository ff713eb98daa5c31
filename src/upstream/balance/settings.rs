//! Settings of balancing.

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
