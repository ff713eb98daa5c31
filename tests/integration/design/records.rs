//! The records on Redis that a decision reads and writes, in the numbers of the story.

use std::cell::RefCell;

use crate::support::Key;
use crate::support::redis::Redis;

/// Reads the records of one key and its organization.
pub(super) struct Records {
    key: String,
    org: String,
    /// Time of the story's beginning, in microseconds.
    zero: f64,
    /// The gateways' fields, A first, each with the generations of its lease that were told.
    seen: RefCell<Vec<(String, Vec<f64>)>>,
}

/// Their records at one moment.
pub(super) struct Numbers {
    /// Tokens at the last write of the bucket, which was in this second.
    pub(super) tokens: f64,
    pub(super) measured: f64,
    pub(super) uses: u32,
    /// Slots taken in the organization.
    pub(super) taken: u32,
    /// The leases of A and B; `None` without one.
    pub(super) leases: [Option<Lease>; 2],
}

/// The lease of one gateway.
pub(super) struct Lease {
    pub(super) held: u32,
    /// Second of the last report.
    pub(super) renewed: f64,
    /// Second at which it ends without a further report.
    pub(super) ends: f64,
    pub(super) generation: f64,
}

impl Records {
    pub(super) fn of(key: &Key, zero: f64) -> Self {
        let tag = key.id.tag();
        let tag = tag.as_str();
        let (key, org) = (format!("keygate:{{{tag}}}:key:{}", key.id), format!("keygate:{{{tag}}}:org"));
        Self { key, org, zero, seen: RefCell::default() }
    }

    pub(super) fn read(&self, server: &Redis) -> Numbers {
        let live: Vec<u8> = server.query(redis::cmd("HGET").arg(&self.key).arg("live")).unwrap();
        let [level, at, per, uses, _] = doubles(&live[8..]);
        let fields: Vec<(String, Vec<u8>)> = server.query(redis::cmd("HGETALL").arg(&self.org)).unwrap();
        let org = &fields.iter().find(|(name, _)| name == "live").unwrap().1;
        let [taken, ..]: [f64; 3] = doubles(&org[8..]);
        let mut leases = [None, None];
        for (name, entry) in fields.iter().filter(|(name, _)| name.starts_with("h:")) {
            let (place, lease) = self.lease(name, entry);
            leases[place] = Some(lease);
        }
        Numbers { tokens: level / per, measured: self.second(at), uses: uses as u32, taken: taken as u32, leases }
    }

    fn lease(&self, name: &str, entry: &[u8]) -> (usize, Lease) {
        let [held, reported, time, generation] = doubles(entry);
        let mut seen = self.seen.borrow_mut();
        let place = seen.iter().position(|(known, _)| known == name).unwrap_or_else(|| {
            seen.push((name.to_owned(), Vec::new()));
            seen.len() - 1
        });
        let (renewed, ends) = (self.second(reported), self.second(reported + time));
        (place, Lease { held: held as u32, renewed, ends, generation })
    }

    /// Slots, generation and end of a gateway's lease, as the pages have them. Generations are numbered from 1, in the
    /// order in which they are told.
    pub(super) fn words(&self, gateway: usize, lease: Option<&Lease>) -> String {
        let Some(Lease { held, ends, generation, .. }) = lease else { return "-".to_owned() };
        let told = &mut self.seen.borrow_mut()[gateway].1;
        if told.last() != Some(generation) {
            told.push(*generation);
        }
        format!("{held} (gen {}, to {ends})", told.len())
    }

    fn second(&self, time: f64) -> f64 {
        (time - self.zero) / 1e6
    }
}

/// The numbers of a packed record.
fn doubles<const N: usize>(bytes: &[u8]) -> [f64; N] {
    std::array::from_fn(|at| f64::from_le_bytes(bytes[8 * at..8 * at + 8].try_into().unwrap()))
}

impl Lease {
    pub(super) fn held(lease: Option<&Self>) -> String {
        lease.map_or_else(|| "-".to_owned(), |lease| lease.held.to_string())
    }
}
