//! Counting what keys do, line by line: requests and refusals by the hour, and the last use of each key.
//!
//! - Lines are given in the journal's order. A stretch may begin anywhere: what earlier stretches left open is carried on.
//! - It is bounded: by the keys, the hours since the first one counted, and the uses that are open.

use rustc_hash::FxHashMap;

use crate::audit::format::event::Glance;
use crate::audit::format::frame;
use crate::audit::format::line;
use crate::clock::Micros;
use crate::identity::OrgId;
use crate::key::KeyId;

/// Microseconds of an hour. Hours are numbered from the epoch.
pub(crate) const HOUR: u64 = 3_600_000_000;

/// A key, and whose it is.
pub(crate) type Whose = (OrgId, KeyId);

/// What a stretch of the journal says that keys did.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    /// Hours before this one are not counted.
    first: u64,
    pub(crate) hours: FxHashMap<(Whose, u64), Counts>,
    /// The last use of each key that was admitted.
    pub(crate) last: FxHashMap<Whose, Last>,
    /// The uses that have not ended, those of earlier stretches too.
    pub(crate) open: FxHashMap<u128, Whose>,
    /// The ends of uses that may be the last of keys that have none in this stretch.
    pub(crate) ended: Vec<(Whose, u128, Vec<u8>)>,
}

/// How often, within an hour.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) requests: u64,
    pub(crate) refusals: u64,
}

/// A use, as the journal has it.
#[derive(Debug)]
pub(crate) struct Last {
    pub(crate) id: u128,
    /// The line of its beginning.
    pub(crate) begun: Vec<u8>,
    /// That of its end, unless the first says it too.
    pub(crate) ended: Option<Vec<u8>>,
}

/// The hour that a time is in.
pub(crate) fn hour(time: Micros) -> u64 {
    time.0 / HOUR
}

impl Tally {
    /// Nothing yet; hours before `first` are not counted, and `open` are the uses that earlier stretches left open.
    pub(crate) fn new(first: u64, open: FxHashMap<u128, Whose>) -> Self {
        Self { first, open, ..Self::default() }
    }

    /// Counts a use, if it is one of a key; `line` is where it begins.
    pub(crate) fn begun(&mut self, glance: &Glance, line: &[u8]) {
        let Some(whose) = glance.key() else { return };
        let refused = glance.is_refused();
        let hour = hour(glance.time);
        if hour >= self.first {
            let counts = self.hours.entry((whose, hour)).or_default();
            counts.requests += u64::from(!refused);
            counts.refusals += u64::from(refused);
        }
        if !refused {
            self.used(whose, glance, line);
        }
    }

    fn used(&mut self, whose: Whose, glance: &Glance, line: &[u8]) {
        let id = glance.id.as_u128();
        if glance.outcome.is_none() {
            self.open.insert(id, whose);
        }
        let last = self.last.entry(whose).or_insert_with(|| Last { id, begun: Vec::new(), ended: None });
        last.id = id;
        last.ended = None;
        last.begun.clear();
        last.begun.extend_from_slice(line);
    }

    /// Notes the end of a use. Most ends are those of uses that are not the last any more, and are not parsed.
    pub(crate) fn ended(&mut self, line: &[u8]) {
        let Some(id) = line::id(line) else { return };
        let Some(whose) = self.open.get(&id).copied() else { return };
        match self.last.get_mut(&whose) {
            Some(last) if last.id != id => {}
            _ if frame::check(line).is_none() => return,
            Some(last) => last.ended = Some(line.to_vec()),
            None => self.ended.push((whose, id, line.to_vec())),
        }
        self.open.remove(&id);
    }
}
