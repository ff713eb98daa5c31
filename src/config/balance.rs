//! The block `upstream.balance`: the policy by which endpoints are chosen, and their weights.

use http::uri::Authority;

use platform::settings::{Reported, Section, Value};
use upstream::{BalancePolicy, BalanceSettings, HashBy};

/// Reads the block `balance`.
pub(super) fn balance(section: &mut Section<'_>) -> Result<BalanceSettings, Reported> {
    let hash = [("user", HashBy::User), ("org", HashBy::Org), ("key", HashBy::Key)];
    let hash = section.optional("hash", |value| value.choice(&hash));
    let policies = [("least_cost", 0), ("round_robin", 1), ("hash", 2)];
    let policy = section.value_or("policy", 0, |value| value.choice(&policies));
    let weights = section.value_or("weights", Vec::new(), |value| value.list(weight));
    let policy = match (policy, hash?) {
        (0, None) => BalancePolicy::LeastCost,
        (1, None) => BalancePolicy::RoundRobin,
        (2, Some(by)) => BalancePolicy::Hash(by),
        (2, None) => return Err(section.report("hash", "is missing; give user, org or key, or another policy")),
        (_, _) => return Err(section.report("hash", "is only for `policy: hash`; remove it, or set that policy")),
    };
    Ok(BalanceSettings { policy, weights })
}

fn weight(value: &Value<'_>) -> Result<(String, u16), Reported> {
    value.section(|block| {
        let endpoint = block
            .required("endpoint", |value| value.parsed::<Authority>("a host and port, such as store.internal:8081"));
        let weight = block.required("weight", |value| value.integer(1..=1000));
        Ok((endpoint?.to_string(), weight?))
    })
}
