//! Division of revocations into scripts and round trips.

use super::kept::Kept;

/// Revocations in one script. It takes 0.4 to 0.9 ms of the server, well below
/// the 2 ms that no script may take.
const SCRIPT_SIZE: usize = 200;
/// Revocations in one round trip: in a few scripts, or in many where each is in another hash slot of a Cluster.
/// Commands of others run between two round trips.
const ROUND_TRIP_SIZE: usize = 400;

/// The scripts of one round trip: the revocations of each.
pub(super) type RoundTrip<'a> = Vec<&'a [Kept]>;

/// Divides revocations, which are ordered by hash slot. `is_single` says that keys of different hash slots
/// can be in one script.
pub fn round_trips(kept: &[Kept], is_single: bool) -> Vec<RoundTrip<'_>> {
    let same_slot = kept.chunk_by(|one, other| is_single || one.slot == other.slot);
    let mut trips: Vec<RoundTrip<'_>> = Vec::new();
    let mut size = 0;
    for script in same_slot.flat_map(|same| same.chunks(SCRIPT_SIZE)) {
        if trips.is_empty() || size + script.len() > ROUND_TRIP_SIZE {
            trips.push(Vec::new());
            size = 0;
        }
        size += script.len();
        trips.last_mut().into_iter().for_each(|trip| trip.push(script));
    }
    trips
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::redis::revocations::revocation::Revocation;
    use domain::session::TokenDigest;

    fn kept(slots: impl Iterator<Item = u16>) -> Vec<Kept> {
        let revocation = Arc::new(Revocation::Session(TokenDigest::of(b"any")));
        slots.map(|slot| Kept { slot, revocation: Arc::clone(&revocation) }).collect()
    }

    fn sizes(trips: &[RoundTrip<'_>]) -> Vec<Vec<usize>> {
        trips.iter().map(|trip| trip.iter().map(|script| script.len()).collect()).collect()
    }

    #[test]
    fn single_server_gets_few_large_scripts() {
        let kept = kept(0..1000);
        assert_eq!(sizes(&round_trips(&kept, true)), [vec![200, 200], vec![200, 200], vec![200]]);
        assert!(round_trips(&[], true).is_empty());
    }

    #[test]
    fn cluster_gets_a_script_for_each_hash_slot() {
        let kept = kept([7; 250].into_iter().chain([8; 3]).chain(100..300));
        let trips = round_trips(&kept, false);
        let expected = [[vec![200, 50, 3], vec![1; 147]].concat(), vec![1; 53]];
        assert_eq!(sizes(&trips), expected);
        let slots = |script: &&[Kept]| script.iter().all(|kept| kept.slot == script[0].slot);
        assert!(trips.iter().flatten().all(slots), "a script has the keys of one hash slot only");
    }
}
