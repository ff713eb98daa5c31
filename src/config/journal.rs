//! The block `audit`: where uses are recorded, how safely, and for how long.

use std::time::Duration;

use crate::audit::{Durability, OnUnavailable, Settings};
use crate::settings::Section;

/// Seconds of a day.
const DAY: Duration = Duration::from_secs(86_400);
/// A segment is closed at this size: small enough to be searched and shipped at once, large enough to be few.
const SEGMENT_SIZE: u64 = 64 << 20;
/// Attempts with unknown keys recorded per second: enough to see an attack, too few to fill a disk (about 500 MB a day).
const UNKNOWN_PER_SECOND: u32 = 10;

pub(super) fn audit(section: &mut Section<'_>, gateway: &str) -> Option<Settings> {
    let path = section.required("path", |value| value.path());
    let durabilities = [("written", Durability::Written), ("synced", Durability::Synced)];
    let durability = section.optional("durability", Durability::Written, |value| value.choice(&durabilities));
    let policies = [("refuse", OnUnavailable::Refuse), ("drop", OnUnavailable::Drop)];
    let on_unavailable = section.optional("on_unavailable", OnUnavailable::Refuse, |value| value.choice(&policies));
    let segment_size = section.optional("segment_size", SEGMENT_SIZE, |value| value.size(1 << 20..=1 << 34));
    let segment_age = section.optional("segment_age", DAY, |value| value.duration(Duration::from_secs(60)..=DAY * 366));
    let (retention_age, retention_size) = section.section("retention", retention)?;
    let unknown_per_second =
        section.optional("unknown_per_second", UNKNOWN_PER_SECOND, |value| value.integer(0..=100_000));
    check_retention(section, retention_size, segment_size);
    Some(Settings {
        path: path?,
        durability,
        on_unavailable,
        segment_size,
        segment_age,
        retention_age,
        retention_size,
        unknown_per_second,
        gateway: gateway.to_owned(),
    })
}

fn retention(section: &mut Section<'_>) -> (Option<Duration>, Option<u64>) {
    let age = section.maybe("age", |value| value.duration(Duration::from_secs(3600)..=DAY * 36_600));
    let size = section.maybe("size", |value| value.size(1 << 20..=1 << 50));
    (age, size)
}

/// Retention removes whole segments, so it cannot keep less than one.
fn check_retention(section: &Section<'_>, retention_size: Option<u64>, segment_size: u64) {
    if retention_size.is_some_and(|size| size < segment_size) {
        section.report("retention", "size is less than `segment_size`, and whole segments are removed; make it larger");
    }
}
