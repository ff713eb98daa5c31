//! Disk of a machine: the segment of its journal, and the file with the position of its shipper. It survives the
//! process.
//!
//! A model of the files of `crates/journal`: what was written is in the kernel, and what was synced is on the disk. The
//! loss of power takes some of the rest, and may tear the last line.

use journal::audit::StreamPosition;
use state::identity::Memory;

use super::checks::audit::WRITTEN_AFTER_OUTAGE;
use super::random::Random;

/// Disk of a machine.
#[derive(Default)]
pub struct Disk {
    /// Number of the disk, and so of its journal.
    pub number: u64,
    /// Lines of the journal, by the product's code.
    bytes: Vec<u8>,
    /// Bytes that are on the disk.
    synced: usize,
    position: Option<StreamPosition>,
    synced_position: Option<StreamPosition>,
    /// The file of the identity of the state.
    pub memory: Option<Memory>,
    /// Time at which the last process ended that had run for as long as a timed sync takes.
    pub ended: u64,
    /// There was no space from this time, and until that one.
    pub full: (u64, u64),
    /// The next sync fails.
    pub fails_sync: bool,
    /// Pages of which the kernel has dropped the content, after a failed sync.
    has_dropped_pages: bool,
    /// Uses that were appended, in their order.
    pub uses: Vec<u64>,
}

impl Disk {
    pub fn new(number: u64) -> Self {
        Self { number, ..Self::default() }
    }

    /// There is no space until a time: since now, or since an earlier fault that is not over.
    pub fn fill(&mut self, now: u64, until: u64) {
        // Until what was kept is written, it is the same outage to the outcomes.
        let since = if self.full.1 + WRITTEN_AFTER_OUTAGE > now { self.full.0 } else { now };
        self.full = (since, self.full.1.max(until));
    }

    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Appends lines as a whole. Returns false, and appends none, when there is no space.
    pub fn write(&mut self, lines: &[u8], now: u64) -> bool {
        let has_space = now >= self.full.1;
        if has_space {
            self.bytes.extend_from_slice(lines);
        }
        has_space
    }

    /// Brings the first bytes to the disk. Returns false when that fails: pages that were not synced are lost then.
    pub fn sync(&mut self, length: usize) -> bool {
        if self.fails_sync {
            self.has_dropped_pages = true;
        } else {
            self.synced = self.synced.max(length);
        }
        !self.fails_sync
    }

    /// Takes away what is behind the last good line.
    pub fn cut(&mut self, length: u64) {
        self.bytes.truncate(length as usize);
        self.synced = self.synced.min(self.bytes.len());
    }

    /// The file of the shipper, as it is now.
    pub fn position(&self) -> StreamPosition {
        self.position.unwrap_or(StreamPosition::START)
    }

    pub fn write_position(&mut self, position: StreamPosition, is_synced: bool) {
        self.position = Some(position);
        if is_synced {
            self.synced_position = Some(position);
        }
    }

    /// The power is lost: some of what is not on the disk is lost, up to any byte.
    pub fn lose_power(&mut self, random: &mut Random) {
        let unsynced = (self.bytes.len() - self.synced) as u64;
        self.bytes.truncate(self.synced + random.below(unsynced + 1) as usize);
        self.synced = self.bytes.len();
        if random.one_in(2) {
            self.position = self.synced_position;
        }
    }

    /// A process starts on the disk.
    pub fn mount(&mut self) {
        if std::mem::take(&mut self.has_dropped_pages) {
            self.bytes.truncate(self.synced);
        }
        self.fails_sync = false;
    }
}
