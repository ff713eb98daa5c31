//! `heartbeat.lua` in Rust, for large fleets: each call of the script reads the entries of all gateways. In a small
//! fleet the script runs as well, and must make the same.

use super::database::{Bytes, Database, Write};
use super::shard::number_at;

/// The oldest of the joins seen when there are no others.
const NEVER: f64 = 9_007_199_254_740_991.0;

/// Fields of the facts about the record of gateways.
const FACTS: [&[u8]; 3] = [b"begun", b"latest_join", b"whole_from"];

/// The arguments: the lifetime, the latest join seen, and the own join that should be live.
pub struct Told {
    pub lifetime: f64,
    pub seen: f64,
    pub claimed: f64,
    /// Broken on purpose: gateways divide by a registry that lost some of them.
    pub believes_lost_registry: bool,
}

/// Reply and writes of `heartbeat.lua` at `now`, the server's time. It follows the script line by line; entries of
/// earlier versions, which have no join, do not occur.
pub fn heartbeat(
    database: &Database,
    now: u64,
    [record, registry]: [&[u8]; 2],
    name: &[u8],
    told: &Told,
) -> (Vec<u8>, Vec<Write>) {
    let now = now as f64;
    let &Told { lifetime, seen, claimed, believes_lost_registry } = told;
    let parts = |entry: &Bytes| [0, 1, 2, 3].map(|place| number_at(entry, place));
    let is_live = |last_beat: f64, lifetime: f64| (now - last_beat).abs() <= lifetime;
    let known = FACTS.map(|fact| database.field(registry, fact));
    let is_empty = database.fields(record).is_none();
    let number = |fact: Option<&Bytes>, otherwise| {
        fact.map_or(otherwise, |fact| std::str::from_utf8(fact).unwrap().parse().unwrap())
    };
    let (begun, mut latest_of_all): (f64, f64) = (number(known[0], now), number(known[1], 0.0));
    let mut whole_from = number(known[2], if is_empty { now + lifetime } else { 0.0 });
    if lifetime > 0.0 {
        whole_from = whole_from.min(now + lifetime);
    }
    let own = database.field(record, name).map(parts);
    let mut joined = None;
    if let Some([last_beat, lifetime_of_entry, its_join, _]) = own {
        if is_live(last_beat, lifetime_of_entry) {
            joined = Some(its_join);
        } else if claimed > 0.0 {
            whole_from = now + lifetime;
        }
    }
    let was_lost = seen > latest_of_all || (own.is_none() && claimed > 0.0 && claimed < begun);
    if was_lost && now >= whole_from {
        whole_from = now + lifetime;
    }
    let is_whole = believes_lost_registry || now >= whole_from;
    if own.is_none() && claimed > 0.0 && !is_whole {
        joined = Some(claimed);
    }
    let (mut count, mut earlier, mut least_seen, mut latest) = (0.0, 0.0, NEVER, 0.0_f64);
    let mut writes = Vec::new();
    let others = database.fields(record).into_iter().flatten();
    for (other, entry) in others.filter(|(other, _)| ***other != *name) {
        let [last_beat, its_lifetime, its_join, its_seen] = parts(entry);
        if !is_live(last_beat, its_lifetime) {
            writes.push(Write::Remove { record: record.into(), field: Bytes::clone(other) });
            continue;
        }
        count += 1.0;
        if joined.is_some_and(|joined| its_join < joined) {
            earlier += 1.0;
        }
        least_seen = its_seen.min(least_seen);
        latest = latest.max(its_join);
    }
    latest_of_all = if believes_lost_registry { latest } else { latest_of_all.max(latest).max(seen) };
    let (joined, earlier) = joined.map_or((now.max(latest_of_all + 1.0), count), |joined| (joined, earlier));
    if lifetime > 0.0 {
        writes.push(Write::set(record, name, &[now, lifetime, joined, seen].map(f64::to_le_bytes).concat()));
        let facts = [begun, latest_of_all.max(joined), whole_from].map(|fact| format!("{fact:.0}"));
        for ((field, fact), known) in FACTS.iter().zip(&facts).zip(known) {
            if known.is_none_or(|known| **known != *fact.as_bytes()) {
                writes.push(Write::set(registry, field, fact.as_bytes()));
            }
        }
    } else {
        writes.push(Write::Remove { record: record.into(), field: name.into() });
    }
    let is_whole = f64::from(u8::from(is_whole));
    ([joined, count, earlier, least_seen, latest, is_whole].map(f64::to_le_bytes).concat(), writes)
}
