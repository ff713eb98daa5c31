//! `heartbeat.lua` in Rust, for large fleets: each call of the script reads the entries of all gateways. In a small fleet
//! the script runs as well, and must make the same.

use super::database::{Bytes, Database, Write};
use super::shard::number_at;

/// Reply and writes of `heartbeat.lua` at `now`, the server's time. It follows the script's loop and its end line by line;
/// entries of earlier versions, which have no join, do not occur.
pub fn heartbeat(
    database: &Database,
    now: u64,
    record: &[u8],
    own: &[u8],
    lifetime: f64,
    seen: f64,
) -> (Vec<u8>, Vec<Write>) {
    let now = now as f64;
    let (mut joined, mut latest) = (None, 0.0_f64);
    let (mut others, mut writes) = (Vec::new(), Vec::new());
    for (name, entry) in database.fields(record).into_iter().flatten() {
        let [last_beat, its_lifetime, its_join, its_seen] = [0, 1, 2, 3].map(|place| number_at(entry, place));
        if (now - last_beat).abs() > its_lifetime {
            writes.push(Write::Remove { record: record.into(), field: Bytes::clone(name) });
            continue;
        }
        latest = latest.max(its_join);
        if **name == *own {
            joined = Some(its_join);
        } else {
            others.extend([its_join, its_seen].map(f64::to_le_bytes).concat());
        }
    }
    if lifetime > 0.0 {
        let joined = *joined.get_or_insert(now.max(latest + 1.0));
        let entry = [now, lifetime, joined, seen].map(f64::to_le_bytes).concat();
        writes.push(Write::set(record, own, &entry));
    } else {
        writes.push(Write::Remove { record: record.into(), field: own.into() });
    }
    ([&joined.unwrap_or(0.0).to_le_bytes()[..], &others].concat(), writes)
}
