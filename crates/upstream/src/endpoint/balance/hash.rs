//! Consistent hashing with bounded loads (Mirrokni, Thorup, Zadimoghaddam 2016), as a pure function.
//!
//! - Each request prefers the endpoints in an order of its own, by rendezvous hashing (Thaler, Ravishankar 1998): when
//!   an endpoint goes, only its requests move, and when one comes, it takes its part from all alike. No ring is kept.
//! - It goes to the first of them with fewer requests in flight than 1.25 times its part of all.
//! - All workers and gateways have the same order.

use http::HeaderMap;

use super::random::mix;
use super::settings::HashBy;

/// Requests in flight that an endpoint may have, in parts of its share of all.
const MOST_LOAD: f32 = 1.25;

/// Hash of the identity of a request, which the gateway has set in its head.
pub(crate) fn hash_of(headers: &HeaderMap, by: HashBy) -> u64 {
    let name = match by {
        HashBy::User => "x-user-id",
        HashBy::Org => "x-org-id",
        HashBy::Key => "x-key-id",
    };
    let value = headers.get(name).or_else(|| headers.get("x-user-id"));
    value.map_or(0, |value| hash(value.as_bytes()))
}

/// Hash of a name: FNV-1a, mixed. The same in all processes.
pub(crate) fn hash(bytes: &[u8]) -> u64 {
    let fold = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01B3);
    mix(bytes.iter().fold(0xCBF2_9CE4_8422_2325, fold))
}

/// Endpoint as hashing sees it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Candidate {
    /// Hash of the endpoint's name.
    pub(crate) id: u64,
    /// From 0, which excludes the endpoint, to 1.
    pub(crate) share: f32,
    pub(crate) in_flight: usize,
}

/// Chooses the endpoint of a request with this hash. None when all are excluded.
#[allow(clippy::cast_precision_loss, reason = "requests in flight")]
pub(crate) fn choose_by_hash(count: usize, hash: u64, candidate: impl Fn(usize) -> Candidate) -> Option<usize> {
    let candidates = || (0..count).map(|index| (index, candidate(index))).filter(|(_, one)| one.share > 0.0);
    let (load, shares) =
        candidates().fold((1, 0.0), |(load, shares), (_, one)| (load + one.in_flight, shares + one.share));
    let has_room =
        |one: &Candidate| one.in_flight as f32 + 1.0 <= (load as f32 * MOST_LOAD * one.share / shares).ceil();
    let best = candidates()
        .filter(|(_, one)| has_room(one))
        .max_by(|(_, a), (_, b)| score(hash, a).total_cmp(&score(hash, b)));
    best.map(|(index, _)| index)
}

/// Weighted rendezvous score: the highest wins, with a chance that is the endpoint's share.
#[allow(clippy::cast_precision_loss, reason = "a number from 0 to 1")]
fn score(hash: u64, one: &Candidate) -> f32 {
    let unit = ((mix(hash ^ one.id) >> 40) as f32 + 0.5) / (1_u64 << 24) as f32;
    -one.share / unit.ln()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn candidates(count: usize) -> Vec<Candidate> {
        (0..count)
            .map(|index| Candidate { id: hash(format!("e{index}").as_bytes()), share: 1.0, in_flight: 0 })
            .collect()
    }

    fn choose(all: &[Candidate], key: u64) -> usize {
        choose_by_hash(all.len(), mix(key), |index| all[index]).unwrap()
    }

    #[test]
    fn hash_is_that_of_the_identity() {
        let head = |user: &str, org: &str, key: Option<&str>| {
            let mut head = HeaderMap::new();
            head.insert("x-user-id", user.parse().unwrap());
            head.insert("x-org-id", org.parse().unwrap());
            key.map(|key| head.insert("x-key-id", key.parse().unwrap()));
            head
        };
        let one = head("u", "o", Some("k"));
        let other = head("v", "p", Some("l"));
        for (by, same) in [
            (HashBy::User, head("u", "p", Some("l"))),
            (HashBy::Org, head("v", "o", Some("l"))),
            (HashBy::Key, head("v", "p", Some("k"))),
        ] {
            assert_eq!(hash_of(&one, by), hash_of(&same, by), "{by:?}");
            assert_ne!(hash_of(&one, by), hash_of(&other, by), "{by:?}");
        }
        let session = head("u", "o", None);
        assert_eq!(hash_of(&session, HashBy::Key), hash_of(&session, HashBy::User), "a session has no key");
    }

    #[test]
    fn identities_spread_by_share() {
        let mut all = candidates(4);
        all[3].share = 0.5;
        let mut counts = [0_u16; 4];
        (0..20_000).for_each(|key| counts[choose(&all, key)] += 1);
        for (count, expected) in counts.into_iter().zip([5714.0, 5714.0, 5714.0, 2857.0]) {
            assert!((f32::from(count) / expected - 1.0).abs() < 0.1, "{counts:?}");
        }
    }

    #[test]
    fn only_the_requests_of_an_endpoint_that_goes_move() {
        let all = candidates(5);
        let mut fewer = all.clone();
        fewer[2].share = 0.0;
        for key in 0..2000 {
            let before = choose(&all, key);
            let after = choose(&fewer, key);
            assert!(before == 2 || before == after, "{key}: {before} to {after}");
            assert_ne!(after, 2);
        }
    }

    proptest! {
        /// One identity alone, however many requests it has in flight, leaves no endpoint with more than its bound.
        #[test]
        fn no_endpoint_has_more_than_its_bound(count in 1..10_usize, key: u64, requests in 1..200_usize) {
            let mut all = candidates(count);
            for number in 1..=requests {
                let chosen = choose(&all, key);
                all[chosen].in_flight += 1;
                let bound = (number as f32 * MOST_LOAD / count as f32).ceil() as usize;
                prop_assert!(all[chosen].in_flight <= bound, "{} of {number}", all[chosen].in_flight);
            }
        }
    }
}
