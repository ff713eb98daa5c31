//! The block `upstream.balance`: the policy by which endpoints are chosen.

use crate::settings::{Reported, Section};
use crate::upstream::{BalancePolicy, HashBy};

/// Reads the block `balance`.
pub(super) fn balance(section: &mut Section<'_>) -> Result<BalancePolicy, Reported> {
    let hash = [("user", HashBy::User), ("org", HashBy::Org), ("key", HashBy::Key)];
    let hash = section.optional("hash", |value| value.choice(&hash));
    let policies = [("least_cost", 0), ("round_robin", 1), ("hash", 2)];
    let policy = section.value_or("policy", 0, |value| value.choice(&policies));
    match (policy, hash?) {
        (0, None) => Ok(BalancePolicy::LeastCost),
        (1, None) => Ok(BalancePolicy::RoundRobin),
        (2, Some(by)) => Ok(BalancePolicy::Hash(by)),
        (2, None) => Err(section.report("hash", "is missing; give user, org or key, or another policy")),
        (_, _) => Err(section.report("hash", "is only for `policy: hash`; remove it, or set that policy")),
    }
}
