//! Trace of the last events, by what they concern, and a digest of all of them.

use std::collections::VecDeque;

/// Entries to keep.
const CAPACITY: usize = 300_000;
/// Stands for "none" in an entry.
pub const NONE: usize = usize::MAX;

/// One event.
#[derive(Clone, Copy)]
pub struct Entry {
    pub time: u64,
    pub what: &'static str,
    pub gateway: usize,
    pub key: usize,
    pub org: usize,
    pub shard: usize,
    /// A number that belongs to it: slots, tokens, microseconds.
    pub number: i64,
}

/// Subjects of which the last events are printed.
#[derive(Clone, Copy, Debug)]
pub struct Offender {
    pub gateway: usize,
    pub key: usize,
    pub org: usize,
    pub shard: usize,
}

pub struct Trace {
    entries: VecDeque<Entry>,
    digest: u64,
}

impl Default for Trace {
    fn default() -> Self {
        // FNV-1a.
        Self { entries: VecDeque::new(), digest: 0xcbf2_9ce4_8422_2325 }
    }
}

impl Trace {
    pub fn add(&mut self, entry: Entry) {
        let numbers =
            [entry.time, entry.gateway as u64, entry.key as u64, entry.shard as u64, entry.number.cast_unsigned()];
        for byte in entry.what.bytes().chain(numbers.iter().flat_map(|number| number.to_le_bytes())) {
            self.digest = (self.digest ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
        }
        if self.entries.len() == CAPACITY {
            self.entries.pop_front();
        }
        self.entries.push_back(entry);
    }

    /// Digest of all events so far.
    pub fn digest(&self) -> u64 {
        self.digest
    }

    /// The last events that concern an offender.
    pub fn last(&self, offender: Offender, most: usize) -> Vec<Entry> {
        let concerns = |entry: &&Entry| {
            let is = |one: usize, other: usize| one != NONE && one == other;
            is(entry.key, offender.key)
                || entry.key == NONE
                    && (is(entry.org, offender.org)
                        || entry.org == NONE
                            && (is(entry.shard, offender.shard) || is(entry.gateway, offender.gateway)))
        };
        let mut last: Vec<Entry> = self.entries.iter().rev().filter(concerns).take(most).copied().collect();
        last.reverse();
        last
    }
}

impl std::fmt::Display for Entry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:>12.6} s  {:<34}", self.time as f64 / 1e6, self.what)?;
        for (name, number) in [("gateway", self.gateway), ("shard", self.shard), ("org", self.org), ("key", self.key)] {
            if number != NONE {
                write!(f, " {name} {number}")?;
            }
        }
        if self.number != 0 {
            write!(f, " ({})", self.number)?;
        }
        Ok(())
    }
}
