//! The block `audit`: the audit journal, its durability and its retention.

use std::time::Duration;

use crate::audit::{Durability, OnUnavailable, Settings};
use crate::settings::{Reported, Section};

/// One day.
const DAY: Duration = Duration::from_secs(86_400);
/// Size at which a segment is closed: small enough to be searched and shipped at once, large enough to be few.
const SEGMENT_SIZE: u64 = 64 << 20;
/// Attempts with unknown keys recorded per second: enough to see an attack, too few to fill a disk (about 500 MB a day).
const UNKNOWN_PER_SECOND: u32 = 10;

/// Age and total size beyond which closed segments are removed; none: never.
struct Retention {
    age: Result<Option<Duration>, Reported>,
    size: Result<Option<u64>, Reported>,
}

/// Reads the block `audit`; `gateway` is the gateway's name in the records.
pub(super) fn audit(section: &mut Section<'_>, gateway: &str) -> Result<Settings, Reported> {
    let path = section.required("path", |value| value.path());
    let durabilities = [("written", Durability::Written), ("synced", Durability::Synced)];
    let durability = section.value_or("durability", Durability::Written, |value| value.choice(&durabilities));
    let policies = [("refuse", OnUnavailable::Refuse), ("drop", OnUnavailable::Drop)];
    let on_unavailable = section.value_or("on_unavailable", OnUnavailable::Refuse, |value| value.choice(&policies));
    let segment_size = section.value_or("segment_size", SEGMENT_SIZE, |value| value.size(1 << 20..=1 << 34));
    let segment_age = section.value_or("segment_age", DAY, |value| value.duration(Duration::from_secs(60)..=DAY * 366));
    let retention = section.section("retention", |section| Ok(retention(section)));
    let unknown_per_second =
        section.value_or("unknown_per_second", UNKNOWN_PER_SECOND, |value| value.integer(0..=100_000));
    let retention = retention?;
    // Retention removes whole segments, so it cannot keep less than one.
    if matches!(retention.size, Ok(Some(size)) if size < segment_size) {
        section.report("retention", "size is less than `segment_size`, and whole segments are removed; make it larger");
    }
    Ok(Settings {
        path: path?,
        durability,
        on_unavailable,
        segment_size,
        segment_age,
        retention_age: retention.age?,
        retention_size: retention.size?,
        unknown_per_second,
        gateway: gateway.to_owned(),
    })
}

fn retention(section: &mut Section<'_>) -> Retention {
    let age = section.optional("age", |value| value.duration(Duration::from_secs(3600)..=DAY * 36_600));
    let size = section.optional("size", |value| value.size(1 << 20..=1 << 50));
    Retention { age, size }
}
