//! The block `audit`: the audit journal, its durability and its retention.

use std::time::Duration;

use crate::audit::{Durability, LowWater, OnUnavailable, RefusalRecords, Settings};
use crate::settings::{Reported, Section, Value};

/// One day.
const DAY: Duration = Duration::from_secs(86_400);
/// Size at which a segment is closed: small enough to be searched and shipped at once, large enough to be few.
const SEGMENT_SIZE: u64 = 64 << 20;
/// Attempts with unknown keys recorded per second: enough to see an attack, too few to fill a disk (about 500 MB a day).
const UNKNOWN_PER_SECOND: u32 = 10;

/// Free space below which the journal saves space: a tenth of the volume, time enough to make room.
const LOW_WATER: LowWater = LowWater::Percent(10);

/// Age and total size beyond which closed segments are removed.
struct Retention {
    age: Result<Option<Duration>, Reported>,
    size: Result<Option<SizeLimit>, Reported>,
}

/// Total size beyond which closed segments are removed, as configured.
#[derive(Clone, Copy, PartialEq)]
enum SizeLimit {
    Never,
    Bytes(u64),
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
    let low_water = section.value_or("low_water", LOW_WATER, low_water);
    let forms = [("coalesced", RefusalRecords::Coalesced), ("each", RefusalRecords::Each)];
    let refusals = section.value_or("refusals", RefusalRecords::Coalesced, |value| value.choice(&forms));
    let retention = retention?;
    let (age, size) = (retention.age?, retention.size?);
    // Retention removes whole segments, so it cannot keep less than one.
    if matches!(size, Some(SizeLimit::Bytes(size)) if size < segment_size) {
        section.report("retention", "size is less than `segment_size`, and whole segments are removed; make it larger");
    }
    Ok(Settings {
        path: path?,
        durability,
        on_unavailable,
        segment_size,
        segment_age,
        retention_age: age,
        retention_size: size.and_then(|size| if let SizeLimit::Bytes(size) = size { Some(size) } else { None }),
        // Who configures an age wants the journal kept for that long, whatever its size.
        retention_by_volume: age.is_none() && size.is_none(),
        low_water,
        unknown_per_second,
        refusals,
        gateway: gateway.to_owned(),
    })
}

fn retention(section: &mut Section<'_>) -> Retention {
    let age = section.optional("age", |value| value.duration(Duration::from_secs(3600)..=DAY * 36_600));
    let size = section.optional("size", |value| match value.text()?.as_str() {
        "never" => Ok(SizeLimit::Never),
        _ => value.size(1 << 20..=1 << 50).map(SizeLimit::Bytes),
    });
    Retention { age, size }
}

/// Reads a part of the volume in percent, or a size.
fn low_water(value: &Value<'_>) -> Result<LowWater, Reported> {
    let text = value.text()?;
    let Some(percent) = text.strip_suffix('%') else { return value.size(0..=1 << 50).map(LowWater::Bytes) };
    match percent.parse() {
        Ok(percent @ 0..=50) => Ok(LowWater::Percent(percent)),
        _ => value.reject(format_args!("{text} is out of range; give 0% to 50%, or a size")),
    }
}
