//! Retention: removes closed segments that are too old or, together, too large.
//!
//! - Segments are removed from the oldest on, never one after one that stays: what is left has no gap.
//! - A segment stays while it holds the beginning of an open use, and until it is sealed.

use std::time::{Duration, SystemTime};

use super::writer::JournalWriter;
use crate::audit::format::segment::{self, Segment};
use crate::audit::index::indexer::Indexer;

/// Removes expired segments, and their rows in the index. Segments from `current` on are not closed.
pub(crate) fn remove_expired(writer: &JournalWriter, current: u64, indexer: &mut Indexer) {
    let settings = &writer.settings;
    if settings.retention_age.is_none() && settings.retention_size.is_none() {
        return;
    }
    let segments = segment::list(&settings.path).unwrap_or_else(|error| {
        tracing::warn!(%error, "cannot list the audit segments; expired ones are kept until the next attempt");
        Vec::new()
    });
    let required = oldest_required(writer).min(current);
    let limits = RetentionLimits { age: settings.retention_age, size: settings.retention_size, now: SystemTime::now() };
    for number in select_expired(&segments, required, limits) {
        if let Err(error) = std::fs::remove_file(segment::path(&settings.path, number)) {
            tracing::warn!(%error, segment = number, "cannot remove an expired audit segment; trying again");
            // A later segment must not go before this one.
            break;
        }
        indexer.remove_segment(number);
    }
}

/// The oldest segment that must stay, because it holds an open use or has no seal yet.
fn oldest_required(writer: &JournalWriter) -> u64 {
    let pending = writer.lock_pending();
    let open = pending.open.values().map(|open| open.segment);
    open.chain(pending.unsealed.iter().copied()).min().unwrap_or(u64::MAX)
}

#[derive(Clone, Copy)]
struct RetentionLimits {
    age: Option<Duration>,
    /// Bytes of all segments together.
    size: Option<u64>,
    now: SystemTime,
}

/// Selects the segments to remove. `segments` are all segments, oldest first; `required` is the oldest one that must
/// stay.
fn select_expired(segments: &[Segment], required: u64, limits: RetentionLimits) -> Vec<u64> {
    let mut total: u64 = segments.iter().map(|segment| segment.length).sum();
    let mut expired = Vec::new();
    for segment in segments.iter().take_while(|segment| segment.number < required) {
        let age = limits.now.duration_since(segment.modified).unwrap_or_default();
        let too_old = limits.age.is_some_and(|limit| age > limit);
        let too_large = limits.size.is_some_and(|limit| total > limit);
        // The first segment that stays keeps all later ones.
        if !too_old && !too_large {
            break;
        }
        total -= segment.length;
        expired.push(segment.number);
    }
    expired
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn oldest_segments_are_removed_first_and_required_ones_stay() {
        let now = SystemTime::now();
        let hours = |hours: u64| Duration::from_secs(hours * 3600);
        let of = |number, age| Segment { number, length: 10, modified: now - hours(age) };
        let segments = [of(1, 9), of(2, 8), of(3, 2), of(4, 1)];
        let limits = |age, size| RetentionLimits { age, size, now };
        assert_eq!(select_expired(&segments, 4, limits(Some(hours(5)), None)), [1, 2]);
        assert_eq!(select_expired(&segments, 2, limits(Some(hours(5)), None)), [1]);
        assert_eq!(select_expired(&segments, 4, limits(None, Some(15))), [1, 2, 3]);
        assert_eq!(select_expired(&segments, 4, limits(None, Some(40))), [0; 0]);
        assert_eq!(select_expired(&segments, 1, limits(Some(hours(0)), Some(0))), [0; 0]);
        assert_eq!(select_expired(&segments, 4, limits(None, None)), [0; 0]);
    }
}
