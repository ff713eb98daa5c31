//! `heartbeat.lua` in Rust, for large fleets: each call of the script reads the entries of all gateways. In a small
//! fleet the script runs as well, and must make the same.

use super::database::{Bytes, Database, Write};
use super::shard::number_at;

/// The oldest of the joins seen when there are no others.
const NEVER: f64 = 9_007_199_254_740_991.0;

/// Reply and writes of `heartbeat.lua` at `now`, the server's time. It follows the script's loop and its end line by
/// line; entries of earlier versions, which have no join, do not occur.
pub fn heartbeat(
    database: &Database,
    now: u64,
    record: &[u8],
    own: &[u8],
    lifetime: f64,
    seen: f64,
) -> (Vec<u8>, Vec<Write>) {
    let now = now as f64;
    let parts = |entry: &[u8]| [0, 1, 2, 3].map(|place| number_at(entry, place));
    let is_live = |last_beat: f64, lifetime: f64| (now - last_beat).abs() <= lifetime;
    let own_join = database.field(record, own).and_then(|entry| {
        let [last_beat, lifetime, joined, _] = parts(entry);
        is_live(last_beat, lifetime).then_some(joined)
    });
    let mut count = 0.0;
    let mut earlier = 0.0;
    let mut least_seen = NEVER;
    let mut latest = 0.0_f64;
    let mut writes = Vec::new();
    for (name, entry) in database.fields(record).into_iter().flatten().filter(|(name, _)| ***name != *own) {
        let [last_beat, its_lifetime, its_join, its_seen] = parts(entry);
        if !is_live(last_beat, its_lifetime) {
            writes.push(Write::Remove { record: record.into(), field: Bytes::clone(name) });
            continue;
        }
        count += 1.0;
        if own_join.is_some_and(|joined| its_join < joined) {
            earlier += 1.0;
        }
        least_seen = its_seen.min(least_seen);
        latest = latest.max(its_join);
    }
    let (joined, earlier) = own_join.map_or((now.max(latest + 1.0), count), |joined| (joined, earlier));
    if lifetime > 0.0 {
        let entry = [now, lifetime, joined, seen].map(f64::to_le_bytes).concat();
        writes.push(Write::set(record, own, &entry));
    } else {
        writes.push(Write::Remove { record: record.into(), field: own.into() });
    }
    ([joined, count, earlier, least_seen, latest].map(f64::to_le_bytes).concat(), writes)
}
