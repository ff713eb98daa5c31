//! The time before which no record can appear in a journal any more.

use std::io;
use std::path::Path;

use crate::audit::read::lock;
use crate::audit::write::refusals::slot_file;
use crate::audit::write::spool;
use domain::clock::Micros;

/// Time within which the record of a request is in the journal of a gateway that runs: decisions and the counts of refusals
/// take seconds at most. In microseconds.
const SETTLING: u64 = 60_000_000;

/// The time before which a journal has all its records, when it is read after this call.
///
/// A gateway that was killed, or whose disk is full, has counts of refusals beside the journal. They have the times of
/// their requests, and are recorded later.
pub(super) fn settled_before(directory: &Path, now: Micros) -> io::Result<Micros> {
    let settled = Micros(now.0.saturating_sub(SETTLING));
    // Lines of a process that was replaced: a gateway that runs merges them at once.
    if !lock::is_locked(directory) && !spool::list(directory)?.is_empty() {
        return Ok(Micros(0));
    }
    Ok(slot_file::oldest_group(directory)?.map_or(settled, |oldest| oldest.min(settled)))
}
