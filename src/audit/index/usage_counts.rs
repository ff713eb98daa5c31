//! Usage of keys, counted line by line: requests and refusals by the hour, and the last use and refusal of each key.

use rustc_hash::FxHashMap;

use super::indexed_use::{IndexedUse, KeyOwner};
use crate::audit::format::frame;
use crate::audit::format::line;
use crate::clock::Micros;

/// Microseconds of an hour. Hours are numbered from the epoch.
pub(crate) const HOUR: u64 = 3_600_000_000;

/// Usage of keys within a stretch of the journal.
///
/// - Lines must be given in the order of the journal. A stretch may begin anywhere: the uses that earlier stretches left
///   open are passed to [`UsageCounts::new`].
/// - Memory is bounded by the keys, the hours since the first one counted, and the open uses.
#[derive(Debug, Default)]
pub(crate) struct UsageCounts {
    /// Hours before this one are not counted.
    first_hour: u64,
    pub(crate) hours: FxHashMap<(KeyOwner, u64), HourCounts>,
    /// The last admitted use of each key.
    pub(crate) last_uses: FxHashMap<KeyOwner, LastUseLines>,
    /// The line of the last refused use of each key.
    pub(crate) last_refusals: FxHashMap<KeyOwner, Vec<u8>>,
    /// Uses that have not ended, including those of earlier stretches.
    pub(crate) open_uses: FxHashMap<u128, KeyOwner>,
    /// Outcomes of uses that began in an earlier stretch, of keys without an admitted use in this one. Such a use may be
    /// the last one of its key: id of the use and line of its outcome.
    pub(crate) late_outcomes: Vec<(KeyOwner, u128, Vec<u8>)>,
}

/// Requests and refusals of a key within an hour.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct HourCounts {
    pub(crate) requests: u64,
    pub(crate) refusals: u64,
}

/// The lines of the last use of a key.
#[derive(Debug)]
pub(crate) struct LastUseLines {
    pub(crate) id: u128,
    /// Line of the use, or of the record.
    pub(crate) begun: Vec<u8>,
    /// Line of the outcome; `None` while the use is open, and when `begun` is a record.
    pub(crate) ended: Option<Vec<u8>>,
}

/// The number of the hour that contains a time.
pub(crate) fn hour_of(time: Micros) -> u64 {
    time.0 / HOUR
}

impl UsageCounts {
    /// Empty counts. Hours before `first_hour` are not counted; `open_uses` are the uses that earlier stretches left
    /// open.
    pub(crate) fn new(first_hour: u64, open_uses: FxHashMap<u128, KeyOwner>) -> Self {
        Self { first_hour, open_uses, ..Self::default() }
    }

    /// Counts a use when it is one of a key; `line` is the line of the use or record.
    pub(crate) fn count_use(&mut self, indexed: &IndexedUse, line: &[u8]) {
        let Some(owner) = indexed.key_owner() else { return };
        let refused = indexed.is_refused();
        let hour = hour_of(indexed.time);
        if hour >= self.first_hour {
            let counts = self.hours.entry((owner, hour)).or_default();
            let counted = if refused { &mut counts.refusals } else { &mut counts.requests };
            *counted = counted.saturating_add(indexed.uses());
        }
        // A refused use is not a use in the sense of "last used".
        if refused {
            let last = self.last_refusals.entry(owner).or_default();
            last.clear();
            last.extend_from_slice(line);
        } else {
            self.set_last_use(owner, indexed, line);
        }
    }

    fn set_last_use(&mut self, owner: KeyOwner, indexed: &IndexedUse, line: &[u8]) {
        let id = indexed.id.as_u128();
        if indexed.outcome.is_none() {
            self.open_uses.insert(id, owner);
        }
        // The buffer of the previous last use is reused: most uses are replaced within the same block.
        let last = self.last_uses.entry(owner).or_insert_with(|| LastUseLines { id, begun: Vec::new(), ended: None });
        last.id = id;
        last.ended = None;
        last.begun.clear();
        last.begun.extend_from_slice(line);
    }

    /// Notes the outcome of a use. Most outcomes belong to uses that are no longer the last one of their key, and are
    /// not parsed.
    pub(crate) fn apply_outcome(&mut self, line: &[u8]) {
        let Some(id) = line::event_id(line) else { return };
        let Some(owner) = self.open_uses.get(&id).copied() else { return };
        match self.last_uses.get_mut(&owner) {
            // A later use of the key has replaced this one.
            Some(last) if last.id != id => {}
            // A damaged line ends nothing: the use stays open.
            _ if frame::verify_line(line).is_none() => return,
            Some(last) => last.ended = Some(line.to_vec()),
            // The use began in an earlier stretch, and the stored last use of the key may be this one.
            None => self.late_outcomes.push((owner, id, line.to_vec())),
        }
        self.open_uses.remove(&id);
    }
}
