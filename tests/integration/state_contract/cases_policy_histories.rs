//! All histories of permissions, policies, suspensions, revocations and expiry: each decision is the one that a small
//! model makes, so that a key never has more than its user, and nothing is admitted after a narrowing was acknowledged.

use std::net::IpAddr;
use std::time::Duration;

use domain::budget::Cost;
use domain::clock::{self, Micros};
use domain::identity::Permission;
use domain::key::policy::{Disabled, DisabledBy, Field, Network, PolicyPatch};
use domain::quota::Quota;
use domain::refusal::Refusal;
use state::{Change, DecideRequest, Decision, PolicyScope, RouteAccess, State};

use super::fixture::{Fixture, HeldKey, everything, fixture_with_key, permission};
use crate::support::Random;

/// Histories of a run; `KEYGATE_HISTORIES` is another number.
const HISTORIES: u64 = 10;
/// Changes of one history, each with decisions behind it.
const CHANGES: usize = 40;
const PERMISSIONS: [&str; 3] = ["a", "b", "c"];
/// Networks, and an address in each; the last address is in none.
const NETWORKS: [&str; 3] = ["10.0.0.0/8", "10.1.0.0/16", "2001:db8::/32"];
const ADDRESSES: [&str; 5] = ["10.2.0.1", "10.1.0.1", "2001:db8::1", "::ffff:10.1.0.1", "192.0.2.1"];

/// The truth about one key.
struct Model {
    user: [bool; 3],
    key: Option<[bool; 3]>,
    networks: Vec<usize>,
    expires: Option<Micros>,
    disabled: bool,
    user_suspended: bool,
    org_suspended: bool,
    revoked: bool,
    now: Micros,
}

pub(super) async fn decisions_are_those_of_the_model_in_every_history(state: &State) {
    let histories = std::env::var("KEYGATE_HISTORIES").map_or(HISTORIES, |histories| histories.parse().unwrap());
    for seed in 0..histories {
        history(state, seed).await;
    }
}

async fn history(state: &State, seed: u64) {
    let mut random = Random::new(seed);
    let (fixture, key) = fixture_with_key(state).await;
    let plenty = Quota { requests: 1000, per: Duration::from_secs(1), burst: 100_000, strict: false };
    state.change(Change::limit_key(key.id, Some(plenty))).await.unwrap();
    let (org, user) = (fixture.org, fixture.user);
    let nothing = Change::permit_user(org, user, Vec::new(), None);
    state.change(nothing).await.unwrap();
    let mut model = Model {
        user: [false; 3],
        key: None,
        networks: Vec::new(),
        expires: None,
        disabled: false,
        user_suspended: false,
        org_suspended: false,
        revoked: false,
        // The tokens stay when the quota is raised: so much later the bucket is full.
        now: clock::now().after(Duration::from_secs(200)),
    };
    for step in 0..CHANGES {
        model.alter(&mut random, state, &fixture, &key).await;
        for _ in 0..3 {
            let named = format!("seed {seed}, change {step}");
            model.check(&mut random, state, &key, &named).await;
        }
    }
}

impl Model {
    /// Makes a change in both worlds.
    async fn alter(&mut self, random: &mut Random, state: &State, fixture: &Fixture, key: &HeldKey) {
        let (org, user) = (fixture.org, fixture.user);
        let some = |random: &mut Random| [(); 3].map(|()| random.below(2) == 0);
        let patch = |patch: PolicyPatch| Change::set_key_policy(key.id, Box::new(patch), PolicyScope::Operator);
        let change = match random.below(20) {
            0..4 => {
                self.user = some(random);
                Change::permit_user(org, user, permissions(self.user), None)
            }
            4..8 => {
                self.key = (random.below(4) > 0).then(|| some(random));
                let own = self.key.map(permissions);
                patch(PolicyPatch { permissions: own.map_or(Field::Clear, Field::Set), ..PolicyPatch::default() })
            }
            8..11 => {
                let in_list = some(random);
                self.networks = (0..3).filter(|net| in_list[*net]).collect();
                let own = self.networks.iter().map(|net| NETWORKS[*net].parse::<Network>().unwrap()).collect();
                patch(PolicyPatch { networks: Field::Set(own), ..PolicyPatch::default() })
            }
            11..13 => {
                let after = Duration::from_micros(random.below(2_000_000));
                self.expires = (random.below(4) > 0).then(|| self.now.after(after));
                patch(PolicyPatch { expires: self.expires.map_or(Field::Clear, Field::Set), ..PolicyPatch::default() })
            }
            13..15 => {
                self.disabled = !self.disabled;
                let disabled = Disabled { at: self.now, by: DisabledBy::Person };
                let disabled = if self.disabled { Field::Set(disabled) } else { Field::Clear };
                patch(PolicyPatch { disabled, ..PolicyPatch::default() })
            }
            15..17 => {
                self.user_suspended = !self.user_suspended;
                Change::suspend_user(org, user, self.user_suspended.then_some(self.now), true)
            }
            17 => {
                self.org_suspended = !self.org_suspended;
                Change::suspend_org(org, self.org_suspended)
            }
            18 if random.below(10) == 0 => {
                self.revoked = true;
                Change::RevokeKey { key: key.id, at: self.now }
            }
            _ => {
                self.now = self.now.after(Duration::from_micros(random.below(1_500_000)));
                return;
            }
        };
        let made = state.change(change.clone()).await;
        // The policy of a revoked key stays as it is, which no decision tells.
        assert!(made.is_ok() || self.revoked && matches!(change, Change::UpdateKey { .. }), "{made:?}");
    }

    /// Compares a decision, and what it took, with the model's.
    async fn check(&self, random: &mut Random, state: &State, key: &HeldKey, named: &str) {
        let required = random.index(4);
        let address = ADDRESSES[random.index(ADDRESSES.len())];
        let name = PERMISSIONS.get(required).map(|name| permission(name));
        let access = name.as_ref().map_or(RouteAccess::Everyone, RouteAccess::Permission);
        let ip = address.parse::<IpAddr>().unwrap();
        let client = Some(&ip);
        let before = everything(state, key, self.now).await;
        let ask = DecideRequest { digest: &key.digest, id: None, access, cost: Cost::ONE, client, now: self.now };
        let decision = state.decide(ask).await.unwrap();
        match (self.refusal(required, address), decision) {
            (None, Decision::Admitted(admitted)) => {
                let names: Vec<String> = permissions(self.both()).iter().map(ToString::to_string).collect();
                assert_eq!(admitted.principal.headers.permissions(), names.join(","), "{named}");
                assert_eq!(admitted.number, before.1.uses + 1, "{named}");
                let until = admitted.validity.until();
                assert!(self.expires.is_none_or(|expires| until == expires), "{named}: {until:?}");
            }
            (Some(expected), Decision::Denied { refusal, .. }) => {
                assert_eq!(refusal, expected, "{named}");
                assert_eq!(everything(state, key, self.now).await, before, "{named}: {refusal:?} takes nothing");
            }
            (expected, decision) => panic!("{named}: {expected:?} {decision:?}"),
        }
        assert_eq!(state.in_flight(), 0, "{named}");
    }

    /// The permissions of the key at this moment.
    fn both(&self) -> [bool; 3] {
        let own = self.key.unwrap_or([true; 3]);
        [0, 1, 2].map(|at| self.user[at] && own[at])
    }

    fn refusal(&self, required: usize, address: &str) -> Option<Refusal> {
        let is_in = |net: &usize| match ADDRESSES.iter().position(|other| *other == address) {
            Some(0) => *net == 0,
            Some(1 | 3) => *net < 2,
            Some(2) => *net == 2,
            _ => false,
        };
        let causes = [
            (self.revoked, Refusal::Revoked),
            (self.expires.is_some_and(|expires| expires <= self.now), Refusal::KeyExpired),
            (self.disabled, Refusal::KeyDisabled),
            (self.user_suspended, Refusal::UserSuspended),
            (!self.networks.is_empty() && !self.networks.iter().any(is_in), Refusal::AddressRefused),
            (self.org_suspended, Refusal::OrgSuspended),
            (required < 3 && !self.both()[required.min(2)], Refusal::Forbidden),
        ];
        causes.into_iter().find_map(|(applies, refusal)| applies.then_some(refusal))
    }
}

fn permissions(which: [bool; 3]) -> Vec<Permission> {
    (0..3).filter(|at| which[*at]).map(|at| permission(PERMISSIONS[at])).collect()
}
