//! Steps of a trace.

use std::time::Duration;

use domain::quota::{MAX_PER, MAX_TOKENS, Quota};
use proptest::prelude::*;

/// An overlap in microseconds that a key's time steps over exactly.
const OVERLAP: i64 = 5_000_000;

/// One step. Users, keys and permits are named by numbers, which are taken modulo how many there are.
#[derive(Clone, Debug)]
pub(super) enum Step {
    /// A request with a key.
    Decide {
        key: usize,
        secret: Secret,
        named: Named,
        /// A permission that may be lacking, or none.
        required: Option<bool>,
        cost: u32,
        shift: i64,
    },
    /// Reads the rate-limit status of a key.
    Look { key: usize, shift: i64 },
    /// Drops a permit.
    Release(usize),
    /// A change to the organization, or to a user or a key of it.
    Alter(usize, Alteration),
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Secret {
    Current,
    /// The one before the last rotation.
    Previous,
    /// The first of all.
    First,
    Unknown,
}

/// The key id that the presented key names.
#[derive(Clone, Copy, Debug)]
pub(super) enum Named {
    Nothing,
    Itself,
    Neighbour,
}

#[derive(Clone, Debug)]
pub(super) enum Alteration {
    Suspend(bool),
    LimitOrg(Option<u32>),
    LimitKey(Option<Quota>),
    /// Requests in flight of the key.
    LimitKeySlots(Option<u32>),
    /// With an overlap in microseconds, which may be over before it begins.
    Rotate(i64),
    /// To a secret that another key has.
    RotateToTaken,
    Revoke,
    RemoveUser,
    PermitUser(bool),
    CreateUser,
    CreateKey(Option<Quota>),
}

pub(super) fn steps() -> impl Strategy<Value = Step> {
    let secrets = prop_oneof![
        12 => Just(Secret::Current), 2 => Just(Secret::Previous), 1 => Just(Secret::First), 1 => Just(Secret::Unknown),
    ];
    let named = prop_oneof![Just(Named::Nothing), Just(Named::Itself), Just(Named::Neighbour)];
    let required = prop_oneof![4 => Just(None), 4 => Just(Some(true)), 1 => Just(Some(false))];
    let costs = prop_oneof![6 => Just(1), 3 => 1..6_u32, 1 => 1..=MAX_TOKENS];
    let decide = (0..4_usize, secrets, named, required, costs, shifts()).prop_map(
        |(key, secret, named, required, cost, shift)| Step::Decide { key, secret, named, required, cost, shift },
    );
    prop_oneof![
        40 => decide,
        3 => (0..4_usize, shifts()).prop_map(|(key, shift)| Step::Look { key, shift }),
        25 => (0..100_usize).prop_map(Step::Release),
        12 => (0..4_usize, alterations()).prop_map(|(which, alteration)| Step::Alter(which, alteration)),
    ]
}

/// Steps of a key's time, in microseconds: mostly not or forward, sometimes back, less and more than what counts as
/// a reading that came late.
fn shifts() -> impl Strategy<Value = i64> {
    const SECOND: i64 = 1_000_000;
    prop_oneof![
        6 => Just(0),
        3 => 1..2000_i64,
        4 => 1..5 * SECOND,
        1 => Just(OVERLAP),
        3 => (1..30_i64).prop_map(|hours| hours * 3600 * SECOND),
        2 => -SECOND..0,
        1 => -SECOND - 3..-SECOND + 3,
        1 => -3 * 3600 * SECOND..-SECOND,
    ]
}

fn alterations() -> impl Strategy<Value = Alteration> {
    let overlaps = prop_oneof![1 => Just(0), 3 => Just(OVERLAP), 1 => 1..4_000_000_000_i64, 1 => -10_000_000..0_i64];
    prop_oneof![
        1 => Just(Alteration::Suspend(true)),
        3 => Just(Alteration::Suspend(false)),
        4 => prop::option::of(1..6_u32).prop_map(Alteration::LimitOrg),
        12 => prop::option::weighted(0.8, quotas()).prop_map(Alteration::LimitKey),
        6 => prop::option::of(1..4_u32).prop_map(Alteration::LimitKeySlots),
        4 => overlaps.prop_map(Alteration::Rotate),
        1 => Just(Alteration::RotateToTaken),
        1 => Just(Alteration::Revoke),
        1 => Just(Alteration::RemoveUser),
        3 => any::<bool>().prop_map(Alteration::PermitUser),
        1 => Just(Alteration::CreateUser),
        4 => prop::option::of(quotas()).prop_map(Alteration::CreateKey),
    ]
}

/// Small quotas, which are spent and refilled within a trace, and all others, up to the largest.
pub(in crate::state_contract) fn quotas() -> impl Strategy<Value = Quota> {
    let quota = |requests, secs, burst| Quota { requests, per: Duration::from_secs(secs), burst, strict: false };
    prop_oneof![
        3 => (1..20_u32, 1..20_u64, 1..6_u32).prop_map(move |(requests, per, burst)| quota(requests, per, burst)),
        2 => (1..=MAX_TOKENS, 1..=MAX_PER.as_secs(), 1..=MAX_TOKENS).prop_map(move |(requests, per, burst)| {
            let exact = (domain::quota::EXACT - 1) / (per * 1_000_000);
            quota(requests, per, burst.min(u32::try_from(exact).unwrap_or(u32::MAX)))
        }),
        1 => Just(quota(1, MAX_PER.as_secs(), 284)),
        1 => Just(quota(MAX_TOKENS, MAX_PER.as_secs(), 1)),
        1 => Just(quota(1, 9, MAX_TOKENS)),
        1 => Just(quota(MAX_TOKENS, 1, MAX_TOKENS)),
    ]
    .prop_map(|quota| quota.validate().unwrap())
}
