//! Journal of a gateway's process: the product's pending lines, modes and steps of batches, on a disk in virtual time.
//!
//! As `crates/journal/src/audit/write/append.rs` and `committer.rs` call them: with the durability `written`, a request
//! writes what is pending; with `synced`, the committer writes and syncs for all that have appended meanwhile.

use std::sync::Arc;

use domain::clock::Micros;
use journal::audit::Durability;
use journal::audit::steps::{Batch, BatchCompletion, BatchSteps, PendingLines, RecoveredJournal, SegmentScan, Watch};
use uuid::Uuid;

use super::disk::Disk;

/// Pause between two timed syncs, as in `crates/journal/src/audit/write/timed_sync.rs`.
pub const TIMED_SYNC: u64 = 1_000_000;
/// Wall time at which the simulation begins.
const WALL: u64 = 1_795_000_000_000_000;

/// Journal of a process. Dropped with it: the lines that are not written are lost.
pub struct Journal {
    pub pending: PendingLines,
    pub durability: Durability,
    /// The batch that is being synced, and the length of the journal before and after it.
    pub in_flight: Option<(Batch, BatchSteps, [usize; 2])>,
    /// Beginning of the batch whose sync has failed.
    pub unsynced_from: Option<usize>,
    /// The committer's; none while it sleeps.
    pub watch: Option<Watch>,
    /// A timed sync comes.
    pub is_sync_planned: bool,
    /// Requests that wait for their lines.
    pub waiting: Vec<(u64, Arc<BatchCompletion>)>,
    /// Time at which the mode became one that takes no lines, and the last outage of the disk before it.
    pub failed: Option<(u64, (u64, u64))>,
}

/// Time of the journal.
pub fn wall(now: u64) -> Micros {
    Micros(WALL + now)
}

/// Id of the use of a request.
pub fn use_id(request: u64, now: u64) -> Uuid {
    let millis = u128::from((WALL + now) / 1000);
    Uuid::from_u128(millis << 80 | 7 << 76 | 2 << 62 | u128::from(request))
}

/// Request of a use.
pub fn request_of(id: Uuid) -> u64 {
    id.as_u128() as u64 & (u64::MAX >> 2)
}

impl Journal {
    /// Continues the journal on a disk, as the recovery does: cuts off what is torn, and ends the open uses as aborted.
    pub fn open(disk: &mut Disk, gateway: usize, now: u64) -> Self {
        disk.mount();
        let mut scan = SegmentScan::new(1);
        let mut at = 0;
        for line in disk.bytes().split_inclusive(|byte| *byte == b'\n') {
            if let Some(whole) = line.strip_suffix(b"\n") {
                scan.read_line(at, whole);
            }
            at += line.len() as u64;
        }
        let read_line = |at: u64, length: usize| Ok(disk.bytes()[at as usize..][..length].to_vec());
        let found = scan.finish(read_line).unwrap();
        let length = found.length();
        disk.cut(length);
        let mut pending = match length {
            0 => RecoveredJournal::of_new_journal().into_pending(0),
            _ => found.into_pending(1),
        };
        if length == 0 {
            pending.begin_segment(&format!("g{gateway}"), wall(now));
        }
        pending.abort_open_uses(|_| false);
        // Every third gateway syncs each use before it is forwarded.
        let durability = if gateway % 3 == 2 { Durability::Synced } else { Durability::Written };
        Self {
            pending,
            durability,
            in_flight: None,
            unsynced_from: None,
            watch: None,
            is_sync_planned: false,
            waiting: Vec::new(),
            failed: None,
        }
    }

    /// Length up to which shippers read: without what is being synced, or could not be.
    pub fn readable(&self, disk: &Disk) -> usize {
        let in_flight = self.in_flight.as_ref().map(|(_, _, [before, _])| *before);
        in_flight.or(self.unsynced_from).unwrap_or(disk.bytes().len())
    }

    pub fn next_line(&self) -> u64 {
        self.pending.next_line()
    }
}
