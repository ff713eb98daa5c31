//! Segments that a sink has not taken: retention keeps them up to a stated size, while the volume has room.

use std::sync::atomic::Ordering;

use super::writer::JournalWriter;
use crate::audit::format::segment::SegmentFile;
use crate::audit::format::segment_event::ExpiryReason;

/// Segments that a sink has not taken.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NeededSegments {
    /// The first of them.
    first: u64,
    /// Bytes that they take up.
    size: u64,
    /// Bytes that they may take up beyond the limits of retention.
    limit: u64,
}

impl NeededSegments {
    pub(crate) fn new(writer: &JournalWriter, segments: &[SegmentFile]) -> Self {
        let first = writer.needed_from.load(Ordering::Relaxed);
        let size = segments.iter().filter(|segment| segment.number >= first).map(|segment| segment.size).sum();
        // A full volume would refuse requests: nothing waits for a sink then.
        let has_room = !writer.low_on_space.load(Ordering::Relaxed);
        let limit = if has_room { writer.settings.retention_unshipped } else { 0 };
        Self { first, size, limit }
    }

    /// The expired segments without those that wait for a sink. `expired` begins with the oldest.
    pub(crate) fn keep(self, mut expired: Vec<(SegmentFile, ExpiryReason)>) -> Vec<(SegmentFile, ExpiryReason)> {
        let mut size = self.size;
        let waits = expired.iter().position(|(segment, _)| {
            if segment.number < self.first {
                return false;
            }
            let waits = size <= self.limit;
            size = size.saturating_sub(segment.size);
            waits
        });
        // The first segment that stays keeps all later ones.
        expired.truncate(waits.unwrap_or(expired.len()));
        expired
    }

    /// Reports that a segment was removed although a sink had not taken it.
    pub(crate) fn report_removal(&self, writer: &JournalWriter, segment: u64) {
        if segment < self.first {
            return;
        }
        writer.metrics.unshipped_removed.inc();
        tracing::error!(segment, kept = self.size, limit = self.limit, path = %writer.settings.path.display(),
            "removed an audit segment that a sink has not taken: its records will be missing there; see `keygate audit \
             ship status`, and raise `audit.retention.unshipped`, or make room on the volume");
    }
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use super::*;

    #[test]
    fn segments_wait_for_sinks_up_to_the_size() {
        let of = |number| {
            let segment = SegmentFile { number, is_compressed: true, size: 10, modified: SystemTime::UNIX_EPOCH };
            (segment, ExpiryReason::Age)
        };
        let expired: Vec<_> = (1..=4).map(of).collect();
        // Segments 3 to 6 are needed: they take up 40 bytes.
        let left = |limit| {
            let needed = NeededSegments { first: 3, size: 40, limit };
            needed.keep(expired.clone()).into_iter().map(|(segment, _)| segment.number).collect::<Vec<_>>()
        };
        assert_eq!(left(40), [1, 2], "they wait");
        assert_eq!(left(39), [1, 2, 3], "the oldest goes, and makes room");
        assert_eq!(left(30), [1, 2, 3]);
        assert_eq!(left(0), [1, 2, 3, 4]);
        let all_taken = NeededSegments { first: u64::MAX, size: 0, limit: 40 };
        assert_eq!(all_taken.keep(expired.clone()).len(), 4);
    }
}
