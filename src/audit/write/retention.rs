//! Which closed segments are removed.
//!
//! - Oldest first, and never one after one that stays: what is left is always without a gap.
//! - Never one that holds the beginning of a use still open, and never one that is not sealed yet.

use std::time::{Duration, SystemTime};

use crate::audit::format::segment::{self, Segment};
use crate::audit::index::Indexer;
use crate::audit::write::writer::Shared;

/// Removes what is no longer kept, and its rows in the index.
pub(crate) fn apply(shared: &Shared, current: u64, indexer: &mut Indexer) {
    let settings = &shared.settings;
    if settings.retention_age.is_none() && settings.retention_size.is_none() {
        return;
    }
    let segments = segment::list(&settings.path).unwrap_or_else(|error| {
        tracing::warn!(%error, "the audit journal cannot be listed");
        Vec::new()
    });
    let held = first_held(shared).min(current);
    let limits = Limits { age: settings.retention_age, size: settings.retention_size, now: SystemTime::now() };
    for number in expired(&segments, held, limits) {
        if let Err(error) = std::fs::remove_file(segment::path(&settings.path, number)) {
            tracing::warn!(%error, segment = number, "an expired segment of the audit journal cannot be removed");
            break;
        }
        indexer.forget(number);
    }
}

/// The oldest segment that must stay.
fn first_held(shared: &Shared) -> u64 {
    let pending = shared.pending();
    let open = pending.open.values().map(|open| open.segment);
    open.chain(pending.unsealed.iter().copied()).min().unwrap_or(u64::MAX)
}

#[derive(Clone, Copy)]
struct Limits {
    age: Option<Duration>,
    size: Option<u64>,
    now: SystemTime,
}

/// The segments to remove, of all that are there (oldest first), given the oldest that must stay.
fn expired(segments: &[Segment], held: u64, limits: Limits) -> Vec<u64> {
    let mut total: u64 = segments.iter().map(|segment| segment.length).sum();
    let mut expired = Vec::new();
    for segment in segments.iter().take_while(|segment| segment.number < held) {
        let age = limits.now.duration_since(segment.modified).unwrap_or_default();
        let too_old = limits.age.is_some_and(|limit| age > limit);
        let too_much = limits.size.is_some_and(|limit| total > limit);
        if !too_old && !too_much {
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
    fn the_oldest_go_first_and_what_is_held_stays() {
        let now = SystemTime::now();
        let hours = |hours: u64| Duration::from_secs(hours * 3600);
        let of = |number, age| Segment { number, length: 10, modified: now - hours(age) };
        let segments = [of(1, 9), of(2, 8), of(3, 2), of(4, 1)];
        let limits = |age, size| Limits { age, size, now };
        assert_eq!(expired(&segments, 4, limits(Some(hours(5)), None)), [1, 2]);
        assert_eq!(expired(&segments, 2, limits(Some(hours(5)), None)), [1]);
        assert_eq!(expired(&segments, 4, limits(None, Some(15))), [1, 2, 3]);
        assert_eq!(expired(&segments, 4, limits(None, Some(40))), [0; 0]);
        assert_eq!(expired(&segments, 1, limits(Some(hours(0)), Some(0))), [0; 0]);
        assert_eq!(expired(&segments, 4, limits(None, None)), [0; 0]);
    }
}
