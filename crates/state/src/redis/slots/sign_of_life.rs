//! Signs of life of the servers: heartbeats of the fleet, by which the scripts know an absence of their server.
//!
//! The end of a lease says that its gateway is dead only if the gateway could have reported, which is a fact of the
//! server, and not of an organization about which there may be nothing to report. So every gateway sends heartbeats to
//! every server, also to each of a Cluster. The server keeps since when there was no gap between them
//! (`scripts/sign_of_life.lua`). A script cannot read that record beside those of an organization, which are in
//! another hash slot: the gateway sends what the last heartbeat has told it.
//!
//! - Hash slots that have moved to a server are no part of what is known of it until its next heartbeat, and then of
//!   the time from that one on: the server that they were on may have been away.

use std::ops::RangeInclusive;
use std::time::Duration;

use parking_lot::Mutex;

use crate::redis::packed::pack;
use crate::redis::settings::Settings;
use domain::clock;

/// Hash slots of one server.
pub type HashSlots = Vec<RangeInclusive<u16>>;

/// Signs of life of one server, in microseconds by its clock; zeros where none are known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SignOfLife {
    /// Time since which the signs have no gap of half a lease.
    pub since: u64,
    /// The last sign.
    pub last: u64,
}

/// Signs of life of all servers, as the heartbeats of this gateway have read them.
#[derive(Debug, Default)]
pub(super) struct SignsOfLife(Mutex<Vec<(HashSlots, SignOfLife)>>);

impl SignsOfLife {
    /// Signs of the server of a hash slot.
    pub(super) fn of(&self, hash_slot: u16) -> SignOfLife {
        let servers = self.0.lock();
        let found = servers.iter().find(|(slots, _)| slots.iter().any(|range| range.contains(&hash_slot)));
        found.map(|(_, sign)| *sign).unwrap_or_default()
    }

    /// Notes what the server of these hash slots has replied.
    pub(super) fn note(&self, hash_slots: HashSlots, mut sign: SignOfLife) {
        let mut servers = self.0.lock();
        match servers.iter().find(|(slots, _)| *slots == hash_slots) {
            Some((_, before)) => sign.since = sign.since.max(before.since.min(sign.last)),
            None if servers.iter().any(|(slots, _)| overlap(slots, &hash_slots)) => sign.since = sign.last,
            None => {}
        }
        servers.retain(|(slots, _)| !overlap(slots, &hash_slots));
        servers.push((hash_slots, sign));
    }
}

fn overlap(one: &HashSlots, other: &HashSlots) -> bool {
    one.iter().any(|one| other.iter().any(|other| one.start() <= other.end() && other.start() <= one.end()))
}

/// The packed argument of `sign_of_life.lua`.
pub fn sign_argument(settings: &Settings) -> Vec<u8> {
    let mut packed = Vec::with_capacity(16);
    [settings.lease_micros(), settings.script_time(clock::now())].into_iter().for_each(|part| pack(&mut packed, part));
    packed
}

impl Settings {
    /// Interval of the heartbeats to a server: two of them may be lost within half a lease.
    pub fn sign_interval(&self) -> Duration {
        self.lease / 6
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sign(since: u64, last: u64) -> SignOfLife {
        SignOfLife { since, last }
    }

    #[test]
    fn hash_slots_that_moved_begin_with_the_first_sign_behind_the_move() {
        let signs = SignsOfLife::default();
        signs.note(vec![0..=9], sign(1, 20));
        signs.note(vec![10..=19], sign(2, 21));
        assert_eq!([0, 9, 10, 20].map(|slot| signs.of(slot)), [sign(1, 20), sign(1, 20), sign(2, 21), sign(0, 0)]);
        // The first server takes over a hash slot of the second.
        signs.note(vec![0..=10], sign(1, 30));
        assert_eq!([0, 10, 11].map(|slot| signs.of(slot)), [sign(30, 30), sign(30, 30), sign(0, 0)]);
        signs.note(vec![0..=10], sign(1, 40));
        assert_eq!(signs.of(10), sign(30, 40), "what is known of the server is older than what is known of the slot");
        signs.note(vec![0..=10], sign(35, 41));
        assert_eq!(signs.of(10), sign(35, 41), "there was a gap");
        signs.note(vec![0..=10], sign(7, 8));
        assert_eq!(signs.of(10), sign(8, 8), "the clock was set back");
    }
}
