//! Free space on the journal's volume: its metric, the low-water mark, and the size that the journal
//! may have by default. The size that it has: that of all files in its directory.

use std::fs;
use std::io;
use std::path::Path;
use std::sync::atomic::Ordering;

use super::writer::JournalWriter;
use crate::audit::format::segment::SegmentFile;
use crate::files;
use platform::disk::{self, VolumeSpace};

/// Reads the free space, and logs once when it crosses the low-water mark. `None` when it cannot be read.
pub(crate) fn check(writer: &JournalWriter) -> Option<VolumeSpace> {
    let path = &writer.settings.path;
    let space = disk::volume_space(path).inspect_err(|error| {
        tracing::debug!(%error, path = %path.display(), "cannot read the free space of the audit journal's volume");
    });
    let space = space.ok()?;
    writer.metrics.disk_free.set(i64::try_from(space.free).unwrap_or(i64::MAX));
    let mark = writer.settings.low_water.bytes(space.total);
    let was_low = writer.low_on_space.load(Ordering::Relaxed);
    let is_low = is_below_mark(space.free, mark, was_low);
    writer.low_on_space.store(is_low, Ordering::Relaxed);
    writer.refusals.set_low_space(is_low);
    if is_low && !was_low {
        tracing::warn!(free = space.free, low_water = mark, path = %path.display(),
            "the audit journal's volume is almost full; refusals are only counted; make room");
    } else if was_low && !is_low {
        tracing::info!(free = space.free, low_water = mark, path = %path.display(),
            "the audit journal's volume has free space again");
    }
    Some(space)
}

/// True below the mark; and, once below it, until a tenth more than the mark is free, so that free space that hovers at
/// the mark is not reported again and again.
fn is_below_mark(free: u64, mark: u64, was_below: bool) -> bool {
    free < if was_below { mark.saturating_add(mark / 10) } else { mark }
}

/// The total size that segments may have when no retention is configured: half of the volume, and less where other
/// files would leave too little free; but never less than a tenth of the volume, since other files that fill the disk
/// must not erase the journal.
pub(crate) fn default_limit(space: VolumeSpace, journal: u64, low_water: u64) -> u64 {
    let available = (journal + space.free).saturating_sub(low_water);
    (space.total / 2).min(available).max(space.total / 10)
}

/// The size of all files in the directory beside the segments.
pub(crate) fn other_files(directory: &Path, segments: &[SegmentFile]) -> io::Result<u64> {
    Ok(size_of_files(directory)?.saturating_sub(segments.iter().map(|segment| segment.size).sum()))
}

/// The size of all files in a directory, and in those below it.
fn size_of_files(directory: &Path) -> io::Result<u64> {
    let mut total = 0;
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        // One that was removed meanwhile takes no space.
        let Some(found) = files::if_found(entry.metadata())? else { continue };
        if found.is_dir() {
            total += size_of_files(&entry.path())?;
        } else {
            total += found.len();
        }
    }
    Ok(total)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mark_is_crossed_once_in_each_direction() {
        let below = |free, was_below| is_below_mark(free, 100, was_below);
        assert_eq!(
            [below(100, false), below(99, false), below(105, true), below(110, true)],
            [false, true, true, false]
        );
        assert!(!is_below_mark(0, 0, false), "a mark of 0 is never crossed");
    }

    #[test]
    fn default_limit_is_half_of_the_volume_and_leaves_the_low_water_mark_free() {
        let limit = |free, journal| default_limit(VolumeSpace { total: 1000, free }, journal, 100);
        assert_eq!(limit(900, 50), 500);
        assert_eq!(limit(100, 300), 300, "the journal stays as it is when the mark is free");
        assert_eq!(limit(40, 300), 240, "what is missing below the mark is taken from the journal");
        assert_eq!(limit(0, 150), 100, "a tenth of the volume is the journal's, whatever fills the rest");
    }
}
