//! Membership: this gateway's place among the gateways on one Redis, by which they divide limits
//! while it is unavailable.
//!
//! # Guarantee
//!
//! Let `S` be the gateways that may admit requests without Redis at one moment. Their portions of any whole number of
//! units add up to at most that number, and of any rate to at most that rate, although each computes its own
//! [`Portion`] from the last reply that it got. It follows from three facts about the `k`-th of `m` gateways in `S`, in
//! the order in which they joined:
//!
//! - **its count is at least `m`.** A gateway admits only when every other gateway had *seen* its join
//!   ([`Membership::is_settled`]), and it stays registered for as long as it may admit: its entry lives for the lease,
//!   in which an outage must begin after the last heartbeat, and for `max_staleness`, in which it admits then.
//! - **its rank is at least `k - 1`**, because the `k - 1` that joined earlier are in its list.
//! - A portion only shrinks with the count, and with the rank.
//!
//! A gateway that left or died makes the portions of the others smaller than they could be, until its entry expires.
//!
//! Entries that were lost are noticed (`scripts/heartbeat.lua`). Until every gateway that may admit is registered
//! again, each goes on with the membership that it had, and has seen no join since; one that has none has no portion.
//!
//! On a Cluster heartbeats can be answered while an organization's primary is away, so a portion can change in an
//! outage. Earlier inflow belongs to the earlier portions: a portion counts from the moment at which it began, or from
//! which all others had seen this gateway.

use std::time::Duration;

use crate::redis::packed::unpack;
use domain::clock::Micros;

/// One of `count` portions, the one with number `rank` from 0. Unit `u` of a whole belongs to the rank `u % count`, so
/// that the portions add up to the whole exactly.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Portion {
    count: u32,
    rank: u32,
}

/// Registration of this gateway, as the reply to its last heartbeat reports it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Membership {
    /// Time at which this gateway joined, by the clock of the server.
    joined: u64,
    portion: Portion,
    /// Every other gateway has seen that this one joined, and none is missing.
    is_settled: bool,
    /// None of the gateways that may admit requests is missing.
    is_whole: bool,
    /// The latest join of all gateways. The next heartbeat tells that this gateway has seen it.
    pub latest_join: u64,
    /// Begin of the heartbeat, in steady time.
    beat: Micros,
    /// Time from which this gateway has its portion, and may use it; in steady time.
    portion_since: Micros,
}

/// The other live gateways, as far as a gateway that joined at a given time needs them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OtherGateways {
    /// Number of them.
    pub count: u64,
    /// Number of those that joined earlier. No two join at the same time.
    pub earlier: u64,
    /// The oldest of the latest joins that they have seen; beyond all joins when there are no others.
    pub least_seen: u64,
    /// The latest of their joins; 0 when there are no others.
    pub latest_join: u64,
}

impl Portion {
    /// The portion of a gateway of which `earlier` of `count` gateways joined earlier.
    pub fn new(count: u32, earlier: u32) -> Self {
        Self { count: count.max(1), rank: earlier }
    }

    /// Number of portions.
    pub fn count(self) -> u32 {
        self.count
    }

    /// Units of `total` that belong to this portion.
    pub fn of(self, total: u32) -> u32 {
        total.saturating_sub(self.rank).div_ceil(self.count)
    }

    /// The portion when only the first `most` ranks get one; `None` for the others.
    pub fn among(self, most: u32) -> Option<Self> {
        let count = self.count.min(most);
        (self.rank < count).then_some(Self { count, ..self })
    }
}

#[cfg(test)]
impl OtherGateways {
    /// As `heartbeat.lua` sums up entries, each a join and the latest join seen, for a gateway that joined at `joined`.
    pub fn of(joined: u64, entries: impl IntoIterator<Item = (u64, u64)>) -> Self {
        let none = Self { count: 0, earlier: 0, least_seen: u64::MAX, latest_join: 0 };
        entries.into_iter().fold(none, |sum, (its_join, its_seen)| Self {
            count: sum.count + 1,
            earlier: sum.earlier + u64::from(its_join < joined),
            least_seen: sum.least_seen.min(its_seen),
            latest_join: sum.latest_join.max(its_join),
        })
    }
}

impl Membership {
    /// The membership of a gateway that joined at `joined`, beside the others; `is_whole` says that none is missing.
    pub fn new(joined: u64, others: OtherGateways, is_whole: bool, beat: Micros) -> Self {
        debug_assert!(others.earlier <= others.count, "those that joined earlier are among the others");
        let number = |count: u64| u32::try_from(count).unwrap_or(u32::MAX);
        Self {
            joined,
            portion: Portion::new(number(others.count).saturating_add(1), number(others.earlier)),
            is_settled: is_whole && others.least_seen >= joined,
            is_whole,
            latest_join: others.latest_join.max(joined),
            beat,
            portion_since: beat,
        }
    }

    /// This membership, which follows `previous` at `now`, in steady time.
    #[must_use]
    pub fn following(self, previous: Option<Self>, now: Micros) -> Self {
        if let Some(previous) = previous.filter(|previous| !self.is_whole && previous.joined == self.joined) {
            return Self { beat: self.beat, is_whole: false, ..previous };
        }
        // While not all had seen this gateway, they divided without it: only from then on is its portion its own.
        let same = previous.filter(|previous| previous.is_settled && previous.portion == self.portion);
        Self { portion_since: same.map_or(now, |previous| previous.portion_since), ..self }
    }

    /// Decodes the reply of `heartbeat.lua`.
    pub fn decode(packed: &[u8], beat: Micros) -> Option<Self> {
        let [joined, count, earlier, least_seen, latest_join, is_whole] = unpack(packed)?;
        Some(Self::new(joined, OtherGateways { count, earlier, least_seen, latest_join }, is_whole == 1, beat))
    }

    /// Time at which this gateway joined while its entry should be live, `lifetime` after the last heartbeat; then 0.
    pub fn claimed_join(self, lifetime: u64, now: Micros) -> u64 {
        if now <= Micros(self.beat.0.saturating_add(lifetime)) { self.joined } else { 0 }
    }

    /// Live gateways, this one included.
    pub fn gateways(self) -> u32 {
        self.portion.count
    }

    /// Returns whether every gateway has seen every other one, as far as this reply tells; `seen` is the join that this
    /// gateway's heartbeat told.
    pub fn is_settled(self, seen: u64) -> bool {
        self.is_settled && seen >= self.latest_join
    }

    /// The portion in an outage that began at `since`, and the time from which inflow belongs to it; `None` when this
    /// gateway may not admit in the outage: not all others have seen it, or they may have dropped it, because its last
    /// heartbeat is a lease ago.
    pub fn portion(self, since: Micros, lease: Duration) -> Option<(Portion, Micros)> {
        // The inflow before is that of another portion, which may have admitted it.
        let from = since.max(self.portion_since);
        (self.is_settled && since < self.beat.after(lease)).then_some((self.portion, from))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const LEASE: Duration = Duration::from_secs(10);

    #[test]
    fn portions_add_up_to_the_whole() {
        for count in 1..20 {
            for total in 0..100 {
                let portions = (0..count).map(|rank| Portion::new(count, rank));
                assert_eq!(portions.clone().map(|portion| portion.of(total)).sum::<u32>(), total);
                let served = portions.filter_map(|portion| portion.among(total)).count();
                assert_eq!(served, usize::try_from(count.min(total)).unwrap());
            }
        }
    }

    fn membership(joined: u64, others: &[(u64, u64)], beat: Micros) -> Membership {
        Membership::new(joined, OtherGateways::of(joined, others.iter().copied()), true, beat)
    }

    #[test]
    fn gateway_admits_only_when_all_others_have_seen_it() {
        let portion = |joined, others: &[_]| membership(joined, others, Micros(1)).portion(Micros(2), LEASE);
        assert_eq!(portion(5, &[]), Some((Portion::new(1, 0), Micros(2))));
        assert_eq!(portion(5, &[(3, 4), (4, 5)]), None);
        assert_eq!(portion(5, &[(3, 5), (4, 6)]), Some((Portion::new(3, 2), Micros(2))));
        let member = membership(5, &[(6, 6)], Micros(1));
        assert_eq!(member.latest_join, 6);
        assert!(!member.is_settled(5) && member.is_settled(6));
        assert_eq!(member.portion(Micros(1).after(LEASE), LEASE), None, "the others may have dropped it");
    }

    #[test]
    fn portion_counts_from_its_begin_or_from_which_all_had_seen_the_gateway() {
        let alone = membership(5, &[], Micros(10)).following(None, Micros(11));
        assert_eq!(alone.portion(Micros(9), LEASE), Some((Portion::new(1, 0), Micros(11))));
        let same = membership(5, &[], Micros(20)).following(Some(alone), Micros(21));
        assert_eq!(same.portion(Micros(15), LEASE), Some((Portion::new(1, 0), Micros(15))));
        let smaller = membership(5, &[(6, 6)], Micros(30)).following(Some(same), Micros(31));
        assert_eq!(smaller.portion(Micros(15), LEASE), Some((Portion::new(2, 0), Micros(31))));
        let unseen = membership(5, &[(6, 0)], Micros(40)).following(Some(smaller), Micros(41));
        let seen = membership(5, &[(6, 6)], Micros(50)).following(Some(unseen), Micros(51));
        assert_eq!(seen.portion(Micros(15), LEASE), Some((Portion::new(2, 0), Micros(51))));
    }

    #[test]
    fn gateway_keeps_its_portion_while_others_are_missing() {
        let others = [(3, 6), (6, 6)];
        let before = membership(5, &others, Micros(10)).following(None, Micros(11));
        assert_eq!(before.portion(Micros(15), LEASE), Some((Portion::new(3, 1), Micros(15))));
        let missing = |joined, beat| Membership::new(joined, OtherGateways::of(joined, [(9, 0)]), false, Micros(beat));
        let kept = missing(5, 20).following(Some(before), Micros(21));
        assert_eq!(kept.portion(Micros(15), LEASE), Some((Portion::new(3, 1), Micros(15))));
        assert!(kept.portion(Micros(10).after(LEASE), LEASE).is_some(), "it is registered anew");
        assert_eq!(kept.latest_join, 6, "it has not divided with the one that joined since");
        assert_eq!(
            missing(10, 20).following(Some(before), Micros(21)).portion(Micros(15), LEASE),
            None,
            "it joined anew"
        );
        assert_eq!(missing(10, 20).following(None, Micros(21)).portion(Micros(21), LEASE), None);
        let whole = membership(5, &[(3, 9), (6, 9), (9, 9)], Micros(30)).following(Some(kept), Micros(31));
        assert_eq!(whole.portion(Micros(15), LEASE), Some((Portion::new(4, 1), Micros(31))));
    }

    #[test]
    fn join_is_claimed_while_the_entry_should_be_live() {
        let member = membership(5, &[], Micros(10));
        assert_eq!([20, 21].map(|now| member.claimed_join(10, Micros(now))), [5, 0]);
    }

    #[test]
    fn reply_is_decoded() {
        let packed: Vec<u8> = [7.0, 2.0, 1.0, 7.0, 8.0, 1.0].into_iter().flat_map(f64::to_le_bytes).collect();
        let others = [(3, 8), (8, 7)];
        assert_eq!(Membership::decode(&packed, Micros(1)), Some(membership(7, &others, Micros(1))));
        assert_eq!(Membership::decode(&packed[..40], Micros(1)), None);
    }

    proptest! {
        /// Counts and ranks as outdated as the guarantee allows.
        #[test]
        fn portions_of_outdated_lists_stay_within_the_whole(
            outdated in prop::collection::vec((0..5_u32, 0..5_u32), 1..12), total in 0..60_u32,
        ) {
            let gateways = u32::try_from(outdated.len()).unwrap();
            let portions = (0..).zip(outdated).map(|(position, (more, later))| Portion::new(gateways + more,
                position + later));
            let portions: Vec<Portion> = portions.collect();
            prop_assert!(portions.iter().map(|portion| portion.of(total)).sum::<u32>() <= total);
            // A rate divides by the count, among those that get a token at all.
            let rates = portions.iter().filter_map(|portion| portion.among(total))
                .map(|portion| 27720 / portion.count());
            prop_assert!(rates.sum::<u32>() <= 27720 + gateways);
        }
    }
}
