//! Organizations and keys of the fleet, with the names of their records as the product makes them.

use std::collections::HashMap;
use std::time::Duration;

use domain::budget::{Cost, Spender};
use domain::clock::Micros;
use domain::identity::{OrgId, UserId};
use domain::key::policy::KeyPolicy;
use domain::key::{KeyDigest, KeyId, OrgTag};
use domain::plan_name::PlanName;
use domain::quota::Quota;
use state::redis::{RecordNames, org_slot};
use state::{DecideRequest, RouteAccess};

use super::budgets::{self, Counter};
use super::options::Options;
use super::random::{Random, Zipf};

/// Hash slots of a Redis Cluster.
const HASH_SLOTS: usize = 16_384;
const BASE62: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

pub struct Org {
    pub id: OrgId,
    pub tag: OrgTag,
    pub hash_slot: u16,
    /// The shard that has the hash slot now, and the time at which it moved there.
    pub shard: usize,
    pub moved: u64,
    pub record: Vec<u8>,
    /// Concurrency limit.
    pub limit: u32,
}

pub struct Key {
    pub id: KeyId,
    pub digest: KeyDigest,
    user: UserId,
    pub org: usize,
    pub quota: Quota,
    /// Cost of each of its requests.
    pub cost: Cost,
    /// The plan that gives it the quota and a budget, and the number of the counter.
    plan: Option<PlanName>,
    pub budget: Option<usize>,
    /// Concurrency limit of its own.
    pub concurrent: Option<u32>,
    pub record: Vec<u8>,
    /// Record of its slots.
    pub slots_record: Vec<u8>,
    pub user_record: Vec<u8>,
    /// Record of the uses that were reported after an outage.
    pub reported: Vec<u8>,
}

/// All organizations and keys.
pub struct Directory {
    pub orgs: Vec<Org>,
    pub keys: Vec<Key>,
    popularity: Zipf,
    by_tag: HashMap<OrgTag, usize>,
    by_id: HashMap<KeyId, usize>,
    shards: usize,
    /// Hash slots that are not where they were at first.
    moved: HashMap<u16, usize>,
}

/// Quotas of keys: a busy small one, the default of a minute, a large one of which each gateway of a large fleet has a
/// share, and a strict one, by its inflow, as the scripts know it.
pub fn quota(number: usize) -> Quota {
    let (requests, per, burst, strict) = match number % 4 {
        0 => (10, 1, 20, false),
        1 => (100, 60, 100, false),
        2 => (2000, 1, 4000, false),
        _ => (200, 10, 20, true),
    };
    let quota = Quota { requests, per: Duration::from_secs(per), burst, strict }.validate().unwrap();
    Quota { requests: quota.inflow(), strict: false, ..quota }
}

/// Concurrency limits of keys: every third has one, some smaller than what it asks for, some larger than what its
/// organization has.
fn concurrent(number: usize) -> Option<u32> {
    let limits = [12, 3, 30, 1];
    number.is_multiple_of(3).then(|| limits[number / 3 % limits.len()])
}

fn base62(mut number: usize, digits: usize) -> String {
    let mut text = vec![b'0'; digits];
    for digit in text.iter_mut().rev() {
        *digit = BASE62[number % 62];
        number /= 62;
    }
    String::from_utf8(text).unwrap()
}

impl Org {
    /// As its record has it.
    pub fn exported(&self) -> state::Org {
        let name = self.tag.as_str().to_owned();
        let concurrent = Some(self.limit);
        state::Org { concurrent, ..state::Org::new(self.id, self.tag, name, Micros(1)) }
    }
}

impl Key {
    /// As its record has it.
    pub fn exported(&self, org: &Org) -> state::Key {
        state::Key {
            quota: self.plan.is_none().then_some(self.quota),
            plan: self.plan.clone(),
            policy: self.concurrent.map(|_| Box::new(KeyPolicy { concurrent: self.concurrent, ..Default::default() })),
            ..state::Key::new(self.id, org.id, self.user, "key", Micros(1))
        }
    }

    /// Its user, as the record has it.
    pub fn user_exported(&self, org: &Org) -> state::User {
        state::User::new(self.user, org.id, "user@example.com", Micros(1))
    }
}

impl Directory {
    /// The directory, and the counters of its budgets.
    pub fn new(options: &Options) -> (Self, Vec<Counter>) {
        let names = RecordNames::new("keygate");
        let limits = [100, 8, 2000, 20, 400];
        let orgs: Vec<Org> = (0..options.orgs)
            .map(|number| {
                // Spread over the tags, and so over the hash slots.
                let tag: OrgTag = base62((number * 7919 + 13) % (62 * 62 * 62), 3).parse().unwrap();
                let hash_slot = org_slot(tag);
                let shard = usize::from(hash_slot) * options.shards / HASH_SLOTS;
                let record = names.org(tag).into_bytes();
                let id = OrgId::from((number as u128).to_le_bytes());
                Org { id, tag, hash_slot, shard, moved: 0, record, limit: limits[number % limits.len()] }
            })
            .collect();
        let mut counters: Vec<Counter> = Vec::new();
        let keys: Vec<Key> = (0..options.keys)
            .map(|number| {
                let org = number % options.orgs;
                let tag = orgs[org].tag;
                let id: KeyId = format!("{}{}", tag.as_str(), base62(number, 6)).parse().unwrap();
                let prefix = String::from_utf8(orgs[org].record.clone()).unwrap();
                // Two keys of each user.
                let user_number = org + options.orgs * (number / options.orgs / 2);
                let user = UserId::from((user_number as u128).to_le_bytes());
                let user_record = format!("{}user:{user}", prefix.strip_suffix("org").unwrap()).into_bytes();
                let reported = names.reported_uses(tag).into_bytes();
                // The same quota for all keys of an organization would tie large limits to few shards.
                let quota_number = number / options.orgs + number % options.orgs;
                let spender = budgets::spender(user_number, options.orgs);
                let record = names.key(id).into_bytes();
                let budget = spender.map(|of| {
                    let counter = match of {
                        Spender::Key => &record,
                        Spender::User => &user_record,
                        Spender::Org => &orgs[org].record,
                    };
                    counters.iter().position(|one| one.record == *counter).unwrap_or_else(|| {
                        let (record, reported) = (counter.clone(), reported.clone());
                        let budget = budgets::budget(of);
                        counters.push(Counter { record, reported, org, budget, is_lost: false });
                        counters.len() - 1
                    })
                });
                let digest = KeyDigest::of(id.as_str().as_bytes());
                Key {
                    id,
                    digest,
                    user,
                    org,
                    quota: quota(quota_number),
                    cost: budgets::cost(number, budget.is_some()),
                    plan: spender.map(|of| budgets::plan_name(quota_number, of)),
                    budget,
                    concurrent: concurrent(number),
                    record,
                    slots_record: names.key_slots(id).into_bytes(),
                    user_record,
                    reported,
                }
            })
            .collect();
        let by_tag = orgs.iter().enumerate().map(|(number, org)| (org.tag, number)).collect();
        let by_id = keys.iter().enumerate().map(|(number, key)| (key.id, number)).collect();
        let directory = Self {
            orgs,
            keys,
            popularity: Zipf::new(options.keys),
            by_tag,
            by_id,
            shards: options.shards,
            moved: HashMap::new(),
        };
        (directory, counters)
    }

    /// A key, popular ones more often.
    pub fn draw(&self, random: &mut Random) -> usize {
        self.popularity.draw(random)
    }

    /// A request with a key, at a time of its gateway.
    pub fn request(&self, key: usize, now: Micros) -> DecideRequest<'_> {
        let Key { id, digest, cost, .. } = &self.keys[key];
        DecideRequest { digest, id: Some(*id), access: RouteAccess::Everyone, cost: *cost, client: None, now }
    }

    /// The organization with this tag.
    pub fn org_of(&self, tag: OrgTag) -> usize {
        self.by_tag[&tag]
    }

    /// The key with this id.
    pub fn key_of(&self, id: KeyId) -> usize {
        self.by_id[&id]
    }

    pub fn shard_of_key(&self, key: usize) -> usize {
        self.orgs[self.keys[key].org].shard
    }

    pub fn shard_of_slot(&self, hash_slot: u16) -> usize {
        let first = usize::from(hash_slot) * self.shards / HASH_SLOTS;
        self.moved.get(&hash_slot).copied().unwrap_or(first)
    }

    /// Moves a hash slot. Returns the keys in it, and the names of all its records.
    pub fn move_slot(&mut self, hash_slot: u16, to: usize, now: u64) -> (Vec<usize>, Vec<Vec<u8>>) {
        self.moved.insert(hash_slot, to);
        let mut records = Vec::new();
        for org in self.orgs.iter_mut().filter(|org| org.hash_slot == hash_slot) {
            org.shard = to;
            org.moved = now;
            records.push(org.record.clone());
        }
        let in_slot = |key: &usize| self.orgs[self.keys[*key].org].hash_slot == hash_slot;
        let keys: Vec<usize> = (0..self.keys.len()).filter(in_slot).collect();
        for key in keys.iter().map(|key| &self.keys[*key]) {
            let records_of_key = [&key.record, &key.slots_record, &key.user_record, &key.reported];
            records.extend(records_of_key.map(Vec::clone));
        }
        records.sort_unstable();
        records.dedup();
        (keys, records)
    }
}
