//! One organization in two states, which a trace drives at the same time.

use std::time::Duration;

use domain::budget::Cost;
use domain::clock::{self, Micros};
use domain::identity::UserId;
use domain::key::{KeyDigest, KeyId, PlainKey};
use domain::quota::{Quota, RateLimitStatus};
use domain::refusal::Refusal;
use proptest::prop_assert_eq;
use proptest::test_runner::TestCaseError;
use state::bucket::REORDERED_US;
use state::{Admitted, Change, DecideRequest, Decision, LastRotation, Org, RouteAccess, State};

use super::steps::{Alteration, Named, Secret, Step};
use crate::state_contract::cases_key_slots;
use crate::state_contract::fixture::{new_key, new_org, new_user, permission};

/// Content of an answer.
#[derive(Debug, PartialEq)]
struct Said {
    refusal: Option<Refusal>,
    /// With its header values.
    principal: Option<String>,
    rate_limit: Option<RateLimitStatus>,
    number: Option<u64>,
}

/// A key as the trace knows it.
struct Traced {
    id: KeyId,
    /// All it ever had; the last is in force.
    digests: Vec<KeyDigest>,
    now: Micros,
    /// The bucket's time in the embedded state and on Redis.
    at: [Micros; 2],
}

/// The same organization in two states.
pub(super) struct Worlds<'a> {
    states: [&'a State; 2],
    org: Org,
    users: Vec<UserId>,
    keys: Vec<Traced>,
    permits: Vec<[Admitted; 2]>,
}

impl<'a> Worlds<'a> {
    /// An organization with two users, one of which has a key.
    pub(super) async fn new(embedded: &'a State, redis: &'a State) -> Self {
        let (states, org) = ([embedded, redis], new_org());
        let mut worlds = Self { states, org, users: Vec::new(), keys: Vec::new(), permits: Vec::new() };
        // Of some thousand tags, two may be the same.
        while !worlds.change(&Change::CreateOrg(worlds.org.clone())).await.unwrap() {
            worlds.org = new_org();
        }
        for _ in 0..2 {
            worlds.alter(0, &Alteration::CreateUser).await.unwrap();
        }
        worlds.alter(0, &Alteration::CreateKey(None)).await.unwrap();
        worlds
    }

    pub(super) async fn take(&mut self, step: &Step) -> Result<(), TestCaseError> {
        match step {
            Step::Decide { key, secret, named, required, cost, shift } => {
                let key = self.shifted(*key, *shift);
                self.decide(key, *secret, *named, *required, *cost).await
            }
            Step::Look { key, shift } => {
                let key = self.shifted(*key, *shift);
                self.look(key).await
            }
            Step::Release(_) if self.permits.is_empty() => Ok(()),
            Step::Release(which) => {
                self.permits.swap_remove(which % self.permits.len());
                Ok(())
            }
            Step::Alter(which, alteration) => {
                self.alter(*which, alteration).await?;
                self.listings().await
            }
        }
    }

    /// Drops all permits and compares all records.
    pub(super) async fn end(mut self) -> Result<(), TestCaseError> {
        self.permits.clear();
        for key in 0..self.keys.len() {
            self.look(key).await?;
        }
        for digest in self.keys.iter().flat_map(|key| &key.digests) {
            let [embedded, redis] = self.states;
            prop_assert_eq!(embedded.key_of(digest).await, redis.key_of(digest).await);
        }
        self.listings().await
    }

    /// Moves a key's time, unless that would show what the two variants do not have in common.
    fn shifted(&mut self, key: usize, shift: i64) -> usize {
        let number = key % self.keys.len();
        let key = &mut self.keys[number];
        let now = Micros(key.now.0.strict_add_signed(shift));
        key.now = if key.at[0] == key.at[1] { now } else { now.max(key.at[0]) };
        number
    }

    async fn decide(
        &mut self,
        number: usize,
        secret: Secret,
        named: Named,
        required: Option<bool>,
        cost: u32,
    ) -> Result<(), TestCaseError> {
        let (count, key) = (self.keys.len(), &self.keys[number]);
        let digest = match secret {
            Secret::Current => key.digests[key.digests.len() - 1],
            Secret::Previous => key.digests[key.digests.len().saturating_sub(2)],
            Secret::First => key.digests[0],
            Secret::Unknown => KeyDigest::of(&key.now.0.to_le_bytes()),
        };
        let id = match named {
            Named::Nothing => None,
            Named::Itself => Some(key.id),
            Named::Neighbour => Some(self.keys[(number + 1) % count].id),
        };
        let required = required.map(|held| permission(if held { "queries:read" } else { "queries:write" }));
        let access = required.as_ref().map_or(RouteAccess::Everyone, RouteAccess::Permission);
        let ask = DecideRequest { digest: &digest, id, access, cost: Cost::fixed(cost), client: None, now: key.now };
        let [embedded, redis] = self.states;
        let decisions = [embedded.decide(ask).await.unwrap(), redis.decide(ask).await.unwrap()];
        let [one, other] = decisions.map(said);
        prop_assert_eq!(&one.0, &other.0);
        let key = &mut self.keys[number];
        match one.0.refusal {
            None => key.moved(true),
            Some(_) if one.0.rate_limit.is_some() => key.moved(false),
            Some(_) => {}
        }
        self.permits.extend(one.1.zip(other.1).map(|(one, other)| [one, other]));
        Ok(())
    }

    async fn look(&mut self, number: usize) -> Result<(), TestCaseError> {
        let key = &mut self.keys[number];
        let [embedded, redis] = self.states;
        prop_assert_eq!(
            embedded.rate_limit_status(key.id, key.now).await,
            redis.rate_limit_status(key.id, key.now).await
        );
        key.moved(false);
        Ok(())
    }

    async fn alter(&mut self, which: usize, alteration: &Alteration) -> Result<(), TestCaseError> {
        let (org, user) = (self.org.id, self.users.get(which % self.users.len().max(1)).copied());
        let key = self.keys.get(which % self.keys.len().max(1)).map(|key| (key.id, key.now));
        let read = vec![permission("queries:read"), permission("results:read")];
        let change = match (alteration, user, key) {
            (Alteration::Suspend(suspended), ..) => Change::suspend_org(org, *suspended),
            (Alteration::LimitOrg(concurrent), ..) => Change::limit_org(org, *concurrent),
            (Alteration::CreateUser, ..) => {
                // Every third has an email address that may be taken.
                let user = new_user(org, &format!("{}@example.com", self.users.len() / 3));
                self.users.push(user.id);
                Change::CreateUser(user)
            }
            (Alteration::CreateKey(quota), Some(user), _) => return self.create_key(user, *quota).await,
            (Alteration::LimitKey(quota), ..) => return self.limit_key(which % self.keys.len(), *quota).await,
            (Alteration::LimitKeySlots(concurrent), _, Some((key, _))) => cases_key_slots::limited(key, *concurrent),
            (Alteration::PermitUser(may), Some(user), _) => {
                Change::permit_user(org, user, if *may { read } else { Vec::new() }, None)
            }
            (Alteration::RemoveUser, Some(user), _) => Change::RemoveUser { org, user, at: clock::now() },
            (Alteration::Revoke, _, Some((key, at))) => Change::RevokeKey { key, at },
            (Alteration::Rotate(overlap), _, Some((key, at))) => {
                let digest = PlainKey::generate(key).unwrap().digest();
                let previous_until = Micros(at.0.strict_add_signed(*overlap));
                Change::RotateKey { key, digest, at, previous_until, last: LastRotation::Any }
            }
            (Alteration::RotateToTaken, _, Some((key, _))) => {
                // On Redis, the same digest at the time that it was claimed at is the same change again.
                let at = clock::now();
                let digest = self.keys[(which + 1) % self.keys.len()].digests[0];
                Change::RotateKey { key, digest, at, previous_until: at, last: LastRotation::Any }
            }
            other => unreachable!("{other:?}: the trace begins with users and a key"),
        };
        let made = self.change(&change).await?;
        if let Change::RotateKey { key, digest, .. } = change
            && made
        {
            self.keys.iter_mut().filter(|traced| traced.id == key).for_each(|traced| traced.digests.push(digest));
        }
        Ok(())
    }

    async fn create_key(&mut self, user: UserId, quota: Option<Quota>) -> Result<(), TestCaseError> {
        let (mut key, digest) = new_key(self.org.tag, self.org.id, user);
        let now = clock::now().after(Duration::from_secs(3600));
        (key.quota, key.created) = (quota, now);
        let id = key.id;
        if self.change(&Change::CreateKey { key, digest }).await? {
            self.keys.push(Traced { id, digests: vec![digest], now, at: [now; 2] });
        }
        Ok(())
    }

    /// At the time of the process, which both read for themselves: so it is done where it does not matter which of both
    /// times it is.
    async fn limit_key(&mut self, number: usize, quota: Option<Quota>) -> Result<(), TestCaseError> {
        self.look(number).await?;
        let key = &self.keys[number];
        let rate_limit = self.states[0].rate_limit_status(key.id, key.now).await.unwrap();
        let full_in = Duration::from_micros(rate_limit.expect("the key exists").full_in_us);
        let margin = Duration::from_secs(2);
        let is_full = key.now.after(full_in).after(margin) < clock::now();
        let takes_nothing_in = key.at[0] == key.at[1] && key.at[0] > clock::now().after(margin);
        if !is_full && !takes_nothing_in {
            return Ok(());
        }
        let id = key.id;
        if self.change(&Change::limit_key(id, quota)).await? {
            let key = &mut self.keys[number];
            key.now = clock::now().before(Duration::from_secs(2));
            key.at = [clock::now(); 2];
            self.look(number).await?;
        }
        Ok(())
    }

    /// Makes a change in both; returns true when it was made.
    async fn change(&self, change: &Change) -> Result<bool, TestCaseError> {
        let [one, other] = self.states;
        let (one, other) = (one.change(change.clone()).await, other.change(change.clone()).await);
        prop_assert_eq!(format!("{one:?}"), format!("{other:?}"), "{:?}", change);
        Ok(one.is_ok())
    }

    async fn listings(&self) -> Result<(), TestCaseError> {
        let [one, other] = self.states;
        let ours = async |state: &State| state.orgs().await.unwrap().into_iter().find(|org| org.id == self.org.id);
        prop_assert_eq!(ours(one).await, ours(other).await);
        prop_assert_eq!(one.users(self.org.id).await, other.users(self.org.id).await);
        prop_assert_eq!(one.keys(self.org.id).await, other.keys(self.org.id).await);
        Ok(())
    }
}

impl Traced {
    /// Follows the bucket's time after an answer that looked into the bucket.
    fn moved(&mut self, admitted: bool) {
        let now = self.now;
        let [embedded, redis] = self.at.map(|at| match at.since(now) {
            0 => (now, at),
            1..=REORDERED_US => (at, at),
            _ => (now, now),
        });
        self.at = [embedded.0, if admitted { redis.0 } else { redis.1 }];
    }
}

/// Content of a decision, and its permit.
fn said(decision: Decision) -> (Said, Option<Admitted>) {
    match decision {
        Decision::Admitted(admitted) => {
            assert!(!admitted.provisional);
            let principal = Some(format!("{:?}", admitted.principal));
            let (rate_limit, number) = (Some(admitted.rate_limit.clone()), Some(admitted.number));
            (Said { refusal: None, principal, rate_limit, number }, Some(admitted))
        }
        Decision::Denied { refusal, principal, rate_limit } => {
            let principal = principal.map(|principal| format!("{principal:?}"));
            (Said { refusal: Some(refusal), principal, rate_limit, number: None }, None)
        }
    }
}
