//! Calls of `decide.lua`, as `crates/state/src/redis/decide/decide_codec.rs` packs them, and the records
//! that a gateway caches.

use std::rc::Rc;

use state::bucket::{Bucket, capacity};
use state::redis::{CachedUsage, PendingReport, UnreportedUses};

use super::database::Bytes;
use super::event::{Call, Process};
use super::gateway::{CachedKey, LEASE_US};
use super::lua::Script;
use super::network::field;
use super::shard::number_at;
use super::world::World;

/// Code of a read of the status.
const STATUS_ONLY: f64 = 10.0;
/// `Validity::FOREVER`, as a script gets it: no key is rotated.
const FOREVER: f64 = 9_007_199_254_740_991.0;

impl World {
    /// The call of `decide.lua`, as `crates/state/src/redis/decide/decide_codec.rs` packs it.
    pub fn decide_call(
        &self,
        process: Process,
        key: usize,
        code: f64,
        versions: [u8; 24],
        report: Option<&PendingReport>,
        uses: Option<UnreportedUses>,
    ) -> Call {
        let key = &self.directory.keys[key];
        let org = &self.directory.orgs[key.org];
        let (released, generation, may_register) =
            report.map_or((0, 0, true), |report| (report.released, report.generation, report.may_register));
        let numbers = [
            code,
            FOREVER,
            f64::from(key.quota.inflow()),
            key.quota.per_micros() as f64,
            capacity(key.quota) as f64,
            f64::from(org.limit),
            uses.map_or(0, |uses| uses.total) as f64,
            f64::from(released),
            LEASE_US as f64,
            generation as f64,
            f64::from(u8::from(may_register)),
            0.0,
            1e12,
        ];
        let packed = [&versions[..], numbers.map(f64::to_le_bytes).as_flattened()].concat();
        let mut keys: Vec<Rc<[u8]>> =
            [&key.record, &org.record, &key.user_record].map(|name| Rc::from(&name[..])).into();
        let mut arguments = vec![self.gateways[process.gateway].id.clone(), packed];
        if let Some(uses) = uses {
            keys.push(Rc::from(&key.reported[..]));
            arguments.push(uses.name.to_vec());
        }
        Call::Script { script: Script::Decide, keys, arguments }
    }

    /// The call that reports the uses of a key, and takes nothing.
    pub fn status_call(&self, process: Process, key: usize, uses: UnreportedUses) -> Option<Call> {
        let versions = self.gateways[process.gateway].keys.get(&key)?.versions;
        Some(self.decide_call(process, key, STATUS_ONLY, versions, None, Some(uses)))
    }

    /// The records of a key have been read.
    pub fn cache_records(&mut self, process: Process, key: usize, records: &[Vec<Bytes>]) {
        let [of_key, org, user] = records else { panic!("three records") };
        let live = field(of_key, b"live").unwrap();
        let versions = [
            &live[..8],
            &field(org, b"live").unwrap()[..8],
            field(user, b"version").map_or(&[0; 8][..], |version| version),
        ];
        let versions = versions.concat().try_into().unwrap();
        let is_revoked = field(of_key, b"revoked").is_some();
        let now = self.now;
        let gateway = &mut self.gateways[process.gateway];
        let (steady, generation) = (gateway.steady(now), gateway.kept.generation());
        let is_revoked = is_revoked || gateway.kept.has_key(self.directory.keys[key].id);
        let [level, uses] = [1, 4].map(|place| number_at(live, place));
        let bucket = Bucket { level: level as i64, at: steady };
        match gateway.keys.get_mut(&key) {
            // The usage stays when the rest of the entry is replaced.
            Some(cached) => {
                (cached.versions, cached.is_revoked, cached.seen, cached.confirmed) =
                    (versions, is_revoked, generation, steady)
            }
            None => {
                let usage = CachedUsage::from_bucket(bucket, uses as u64, steady);
                let cached = CachedKey { versions, is_revoked, seen: generation, usage, confirmed: steady };
                gateway.keys.insert(key, cached);
            }
        }
    }
}

/// The read of a key's records, as `encode_read` packs it.
pub fn read_call(gateway: &[u8], key: &[u8], org: &[u8]) -> Call {
    let keys = vec![Rc::from(key), Rc::from(org)];
    Call::Script { script: Script::Decide, keys, arguments: vec![gateway.to_vec(), vec![0; 128]] }
}
