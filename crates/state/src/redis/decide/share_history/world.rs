//! Gateways and Redis of a history: what they do at random, and the bound on what they admitted.

use std::collections::BTreeMap;
use std::time::Duration;

use super::super::share::{Share, quota_of};
use crate::bucket::{Bucket, capacity};
use crate::redis::slots::{Membership, OtherGateways, Portion};
use domain::clock::Micros;
use domain::quota::Quota;

const SECOND: u64 = 1_000_000;
const LEASE: Duration = Duration::from_secs(10);
const STALENESS: Duration = Duration::from_secs(60);
/// Time for which a heartbeat registers a gateway.
const LIFETIME: u64 = 70 * SECOND;
pub(super) const START: u64 = 1_800_000_000 * SECOND;

/// Random numbers by a seed (SplitMix64).
pub(super) struct Random(pub(super) u64);

impl Random {
    pub(super) fn below(&mut self, most: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % most
    }

    pub(super) fn one_in(&mut self, most: u64) -> bool {
        self.below(most) == 0
    }
}

/// One gateway, with one key.
#[derive(Default)]
pub(super) struct Gateway {
    /// Its steady clock minus the true time.
    offset: u64,
    membership: Option<Membership>,
    next_beat: u64,
    /// It does nothing until then.
    paused_until: u64,
    pub(super) cut: bool,
    /// Steady time of Redis's last answer about the key.
    confirmed: Option<Micros>,
    /// Steady time at which it noticed the outage.
    outage: Option<Micros>,
    share: Option<Share>,
    unreported: u64,
}

/// Redis: the bucket of the key, and the gateways.
pub(super) struct Redis {
    pub(super) up: bool,
    pub(super) bucket: Bucket,
    entries: BTreeMap<usize, Entry>,
}

struct Entry {
    beat: u64,
    joined: u64,
    seen: u64,
}

pub(super) struct World {
    quota: Quota,
    pub(super) now: u64,
    pub(super) redis: Redis,
    pub(super) gateways: BTreeMap<usize, Gateway>,
    joined: usize,
    /// Times of all admissions; with `true`, Redis decided.
    pub(super) admitted: Vec<(u64, bool)>,
}

impl World {
    pub(super) fn new(quota: Quota) -> Self {
        let redis = Redis { up: true, bucket: Bucket::full(quota, Micros(START)), entries: BTreeMap::new() };
        Self { quota, now: START, redis, gateways: BTreeMap::new(), joined: 0, admitted: Vec::new() }
    }

    pub(super) fn join(&mut self, random: &mut Random) {
        let offset = random.below(1000 * SECOND);
        self.gateways.insert(self.joined, Gateway { offset, next_beat: self.now, ..Gateway::default() });
        self.joined += 1;
    }

    fn is_connected(&self, gateway: usize) -> bool {
        self.redis.up && !self.gateways[&gateway].cut
    }

    /// Gateways that are not paused.
    fn awake(&self) -> Vec<usize> {
        let awake = self.gateways.iter().filter(|(_, gateway)| gateway.paused_until <= self.now);
        awake.map(|(number, _)| *number).collect()
    }

    /// All heartbeats that are due.
    fn beat(&mut self) {
        for number in self.awake() {
            if self.is_connected(number) && self.gateways[&number].next_beat <= self.now {
                self.beat_of(number);
            }
        }
    }

    fn beat_of(&mut self, number: usize) {
        let now = self.now;
        self.redis.entries.retain(|_, entry| now - entry.beat <= LIFETIME);
        let latest = self.redis.entries.values().map(|entry| entry.joined).max().unwrap_or(0);
        let joined = self.redis.entries.get(&number).map_or(now.max(latest + 1), |entry| entry.joined);
        let others = self.redis.entries.iter().filter(|(other, _)| **other != number);
        let others = OtherGateways::of(joined, others.map(|(_, entry)| (entry.joined, entry.seen)));
        let gateway = self.gateways.get_mut(&number).unwrap();
        let seen = gateway.membership.map_or(0, |membership| membership.latest_join);
        self.redis.entries.insert(number, Entry { beat: now, joined, seen });
        let membership = Membership::new(joined, others, true, Micros(now + gateway.offset));
        gateway.membership = Some(membership.following(gateway.membership, Micros(now + gateway.offset)));
        gateway.next_beat = now + if membership.is_settled(seen) { 3_300_000 } else { 100_000 };
    }

    /// Redis answers a gateway about the key, which reports its uses.
    pub(super) fn answer(&mut self, number: usize) {
        let gateway = self.gateways.get_mut(&number).unwrap();
        let uses = std::mem::take(&mut gateway.unreported);
        self.redis.bucket = self.redis.bucket.refill(self.quota, Micros(self.now)).repay(self.quota, uses);
        let steady = Micros(self.now + gateway.offset);
        (gateway.confirmed, gateway.outage, gateway.share) = (Some(steady), None, None);
    }

    fn request(&mut self, number: usize) {
        if self.is_connected(number) {
            self.answer(number);
            if let Ok(taken) = self.redis.bucket.try_take(self.quota, 1, Micros(self.now)) {
                self.redis.bucket = taken;
                self.admitted.push((self.now, true));
            }
        } else if self.take_offline(number).is_some() {
            self.gateways.get_mut(&number).unwrap().unreported += 1;
            self.admitted.push((self.now, false));
        }
    }

    fn take_offline(&mut self, number: usize) -> Option<()> {
        let quota = self.quota;
        let gateway = self.gateways.get_mut(&number).unwrap();
        let now = Micros(self.now + gateway.offset);
        let since = *gateway.outage.get_or_insert(now);
        let confirmed = gateway.confirmed.filter(|confirmed| confirmed.after(STALENESS) >= now)?;
        let since = since.max(confirmed);
        let (portion, since) = gateway.membership?.portion(since, LEASE)?;
        let part = quota_of(portion, quota)?;
        let share = Share::in_outage(gateway.share, since, portion).try_take(part, 1, now).ok()?;
        gateway.share = Some(share);
        Some(())
    }

    /// Portions of the gateways that may admit now.
    pub(super) fn portions(&self) -> Vec<Portion> {
        let portion = |gateway: &Gateway| {
            let now = Micros(self.now + gateway.offset);
            let confirmed = gateway.confirmed.filter(|confirmed| confirmed.after(STALENESS) >= now)?;
            gateway.membership?.portion(gateway.outage?.max(confirmed), LEASE)?.0.among(self.quota.burst)
        };
        self.gateways.values().filter_map(portion).collect()
    }

    /// Some time, and some requests of some gateways.
    pub(super) fn step(&mut self, random: &mut Random) {
        let token = self.quota.per_micros() / u64::from(self.quota.requests);
        let pause = if random.one_in(20) { 20 * token } else { token };
        self.now += random.below(pause.min(4 * SECOND)) + 1;
        self.beat();
        let awake = self.awake();
        if awake.is_empty() {
            return;
        }
        for _ in 0..random.below(4) {
            let number = awake[usize::try_from(random.below(awake.len() as u64)).unwrap()];
            (0..=random.below(3)).for_each(|_| self.request(number));
        }
        // Others notice an outage without a request, by their connection.
        for number in awake {
            let connected = self.is_connected(number);
            let steady = self.now + self.gateways[&number].offset;
            if !connected && random.one_in(5) {
                self.gateways.get_mut(&number).unwrap().outage.get_or_insert(Micros(steady));
            }
        }
        let portions = self.portions();
        let rate: f64 = portions.iter().map(|portion| 1.0 / f64::from(portion.count())).sum();
        assert!(rate < 1.000_001, "{portions:?}");
        assert!(portions.iter().map(|portion| portion.of(self.quota.burst)).sum::<u32>() <= self.quota.burst);
    }

    /// Gateways join, pause, leave and die.
    pub(super) fn change_gateways(&mut self, random: &mut Random) {
        let awake = self.awake();
        let any = |random: &mut Random| awake.get(usize::try_from(random.below(8)).unwrap()).copied();
        if self.gateways.len() < 8 && random.one_in(40) {
            self.join(random);
        }
        if let Some(number) = any(random).filter(|_| random.one_in(60)) {
            self.gateways.get_mut(&number).unwrap().paused_until = self.now + random.below(120) * SECOND;
        }
        // One that ends reports its uses first; one that dies with unreported uses has spent them for good.
        let reported = any(random).filter(|number| self.gateways[number].unreported == 0);
        if let Some(number) = reported.filter(|_| self.gateways.len() > 1 && random.one_in(60)) {
            self.gateways.remove(&number);
            if self.redis.up && random.one_in(2) {
                self.redis.entries.remove(&number);
            }
        }
    }

    /// Units by which a window exceeds the bound, at most; of admissions that `counts` chooses.
    pub(super) fn excess(&self, counts: impl Fn(bool) -> bool) -> i64 {
        let times: Vec<u64> = self.admitted.iter().filter(|(_, redis)| counts(*redis)).map(|(time, _)| *time).collect();
        let per = i64::try_from(self.quota.per_micros()).unwrap();
        let capacity = i64::try_from(capacity(self.quota)).unwrap();
        let requests = i64::from(self.quota.requests);
        let mut worst = i64::MIN;
        let mut most = i64::MIN;
        // For a window from `first` to `last`: per * (last - first + 1) - requests * (their times' difference).
        for (number, time) in (0..).zip(times) {
            let spent = per * number - requests * i64::try_from(time - START).unwrap();
            most = most.max(-spent);
            worst = worst.max(spent + per + most - capacity);
        }
        worst
    }
}
