//! The coalescer: decides about each refusal, and counts it on disk before its request is answered.

use std::hash::BuildHasher as _;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::{Condvar, Mutex, MutexGuard};
use rustc_hash::FxBuildHasher;

use super::group::RefusalGroup;
use super::slot_file::{MAX_SLOTS, SlotFile};
use super::table::{RefusalKey, RefusalTable, WINDOW};
use crate::audit::format::record::{Use, UseEnd};
use crate::audit::settings::RefusalRecords;
use crate::audit::write::mode::SharedMode;
use domain::clock;

/// Records of their own for each key and outcome in a second: enough to see what a client does, and few enough that a
/// key in a loop writes some 5 KB/s.
const SINGLES_PER_SECOND: u32 = 10;
/// Parts of the table, each with a lock of its own, so that workers rarely wait for each other.
const SHARDS: usize = 16;
/// Time after the end of a second at which its records are written, so that the timer does not end before the second.
/// While the clock runs at half speed the timer does, and is set anew.
const SETTLING: Duration = Duration::from_millis(50);

/// Coalesces the refusals of a journal, for all threads.
#[derive(Debug)]
pub(crate) struct RefusalCoalescer {
    records: RefusalRecords,
    /// The disk is nearly full: no refusal is a record of its own.
    low_space: AtomicBool,
    /// That of the journal.
    mode: SharedMode,
    slots: SlotFile,
    shards: [Mutex<Shard>; SHARDS],
    flusher: Mutex<FlusherState>,
    /// Wakes the flusher: a group was begun, or the journal is closed.
    wake: Condvar,
}

#[derive(Debug)]
struct Shard {
    table: RefusalTable,
    /// Empty buffer for the lines of slots.
    buffer: Vec<u8>,
}

#[derive(Debug, Default)]
struct FlusherState {
    has_groups: bool,
    closed: bool,
}

/// The form in which a refusal is recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Disposition {
    /// It is to be a record of its own.
    Single,
    /// It is counted, and survives a kill of the process.
    Counted,
}

impl RefusalCoalescer {
    /// Opens the slot file of a journal. Groups that a killed gateway left are returned: those that are not in the
    /// journal are to be given to [`RefusalCoalescer::restore`], the others to [`RefusalCoalescer::clear`].
    pub(crate) fn open(directory: &Path, records: RefusalRecords, mode: SharedMode) -> (Self, Vec<Box<RefusalGroup>>) {
        let (slots, left) = SlotFile::open(directory);
        let capacity = MAX_SLOTS as usize / SHARDS;
        let shard = |_| Mutex::new(Shard { table: RefusalTable::new(capacity), buffer: Vec::new() });
        let coalescer = Self {
            records,
            low_space: AtomicBool::new(false),
            mode,
            slots,
            shards: std::array::from_fn(shard),
            flusher: Mutex::default(),
            wake: Condvar::new(),
        };
        (coalescer, left)
    }

    /// While space is low, no refusal is a record of its own: they shrink to one record per key, outcome and second.
    pub(crate) fn set_low_space(&self, is_low: bool) {
        self.low_space.store(is_low, Ordering::Relaxed);
    }

    /// Decides about a refusal, and counts it unless it is to be a record of its own.
    pub(crate) fn count(&self, opening: &Use<'_>, end: UseEnd) -> Disposition {
        let key = RefusalKey::new(opening, end.outcome);
        let mut shard = self.shard(&key);
        let Shard { table, buffer } = &mut *shard;
        // The second in which the request is refused, not that of its arrival: one that waited for Redis is
        // older, and would begin the count of its key anew. The clock is read under the lock, so that readings
        // come in their order.
        let entry = table.entry(key, clock::now().0 / WINDOW);
        if entry.take_single(self.singles_per_second()) {
            return Disposition::Single;
        }
        if let Some(group) = &mut entry.group {
            group.add(opening);
            if self.slots.write(group, buffer).is_err() {
                group.take_back();
                return Disposition::Single;
            }
            return Disposition::Counted;
        }
        let Some(group) = self.begin_group(opening, end, buffer) else { return Disposition::Single };
        entry.group = Some(group);
        drop(shard);
        self.wake_flusher()
    }

    /// Begins a group with this refusal; `None` when there is no slot for it.
    fn begin_group(&self, opening: &Use<'_>, end: UseEnd, buffer: &mut Vec<u8>) -> Option<Box<RefusalGroup>> {
        let slot = self.slots.acquire()?;
        let group = Box::new(RefusalGroup::new(opening, end, slot));
        match self.slots.write(&group, buffer) {
            Ok(()) => Some(group),
            Err(error) => {
                tracing::debug!(%error, slot, "cannot count a refusal; it is a record of its own");
                self.slots.release(slot);
                None
            }
        }
    }

    fn singles_per_second(&self) -> u32 {
        match self.records {
            // The slots are for the successor.
            _ if self.mode.get().is_handed_over() => u32::MAX,
            _ if self.low_space.load(Ordering::Relaxed) => 0,
            RefusalRecords::Coalesced => SINGLES_PER_SECOND,
            RefusalRecords::Each => u32::MAX,
        }
    }

    fn shard(&self, key: &RefusalKey) -> MutexGuard<'_, Shard> {
        let hash = usize::try_from(FxBuildHasher.hash_one(key) >> 32).unwrap_or(0);
        self.shards[hash % SHARDS].lock()
    }

    fn wake_flusher(&self) -> Disposition {
        let mut state = self.flusher.lock();
        if !std::mem::replace(&mut state.has_groups, true) {
            self.wake.notify_one();
        }
        Disposition::Counted
    }

    /// Takes the groups whose second has ended.
    pub(crate) fn take_ended(&self) -> Vec<Box<RefusalGroup>> {
        let take = |shard: &Mutex<Shard>| {
            let mut shard = shard.lock();
            // The clock is read under the lock. A thread that is suspended after an earlier reading would
            // take the second that has come meanwhile for one that has ended, and its keys would begin to
            // count their records anew.
            shard.table.take_ended(Some(clock::now().0 / WINDOW))
        };
        self.shards.iter().flat_map(take).collect()
    }

    /// Takes all groups.
    pub(crate) fn take_all(&self) -> Vec<Box<RefusalGroup>> {
        self.shards.iter().flat_map(|shard| shard.lock().table.take_ended(None)).collect()
    }

    /// Takes groups back that are not in the journal yet.
    pub(crate) fn restore(&self, groups: Vec<Box<RefusalGroup>>) {
        if !groups.is_empty() {
            self.shards[0].lock().table.restore(groups);
            self.wake_flusher();
        }
    }

    /// Frees the slots of groups that are in the journal.
    pub(crate) fn clear(&self, groups: &[Box<RefusalGroup>]) {
        groups.iter().for_each(|group| self.slots.clear(group.slot));
    }

    /// Waits until a second with groups has ended. Returns false when the journal is closed.
    pub(crate) fn wait_until_due(&self) -> bool {
        let mut state = self.flusher.lock();
        while !state.has_groups && !state.closed {
            self.wake.wait(&mut state);
        }
        let to_end = Duration::from_micros(WINDOW - clock::now().0 % WINDOW);
        self.wake.wait_while_for(&mut state, |state| !state.closed, to_end + SETTLING);
        // Groups that are begun from here on are seen now, or set the flag again.
        state.has_groups = false;
        !state.closed
    }

    /// Notes after a flush whether groups are left, so that the flusher comes back for them.
    pub(crate) fn note_rest(&self) {
        if self.shards.iter().any(|shard| shard.lock().table.has_groups()) {
            self.wake_flusher();
        }
    }

    /// Lets a flusher run again.
    pub(crate) fn reopen(&self) {
        self.flusher.lock().closed = false;
    }

    /// Ends the flusher. Call when no refusals come any more.
    pub(crate) fn close(&self) {
        self.flusher.lock().closed = true;
        self.wake.notify_one();
    }
}
