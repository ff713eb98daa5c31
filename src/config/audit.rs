//! The block `audit`: the audit journal, its durability and its retention.

use std::time::Duration;

use super::shipping;
use journal::audit::{
    Addresses, Checkpoints, Durability, LowWater, OnUnavailable, PublicKey, RefusalRecords, Settings, Witness,
};
use platform::outbound::HttpUrl;
use platform::settings::{Reported, Section, Value};
use platform::tls::ClientSettings;

/// One day.
const DAY: Duration = Duration::from_secs(86_400);
/// Size at which a segment is closed: small enough to be searched and shipped at once, large enough to be few.
const SEGMENT_SIZE: u64 = 64 << 20;
/// Attempts with unknown keys recorded per second: enough to see an attack, too few to fill a disk
/// (about 500 MB a day).
const UNKNOWN_PER_SECOND: u32 = 10;

/// Size up to which segments wait for sinks: days of most gateways, and a part of most volumes.
const UNSHIPPED: u64 = 10 << 30;

/// Free space below which the journal saves space: a tenth of the volume, time enough to make room.
const LOW_WATER: LowWater = LowWater::Percent(10);

/// Age and total size beyond which closed segments are removed.
struct Retention {
    age: Result<Option<Duration>, Reported>,
    size: Result<Option<SizeLimit>, Reported>,
    unshipped: u64,
}

/// Total size beyond which closed segments are removed, as configured.
#[derive(Clone, Copy, PartialEq)]
enum SizeLimit {
    Never,
    Bytes(u64),
}

/// Reads the block `audit`: the journal, and the sinks to which it is shipped.
pub(super) fn audit(
    section: &mut Section<'_>,
    gateway: &str,
) -> Result<(Settings, journal::shipping::Settings), Reported> {
    let sinks = section.value_or("ship", Vec::new(), shipping::sinks);
    Ok((journal(section, gateway)?, journal::shipping::Settings { sinks }))
}

/// Reads the settings of the journal; `gateway` is the gateway's name in the records.
fn journal(section: &mut Section<'_>, gateway: &str) -> Result<Settings, Reported> {
    let path = section.required("path", Value::path_of_directory);
    let durabilities = [("written", Durability::Written), ("synced", Durability::Synced)];
    let durability = section.value_or("durability", Durability::Written, |value| value.choice(&durabilities));
    let on_unavailable = section.value_or("on_unavailable", OnUnavailable::Refuse, on_unavailable);
    let segment_size = section.value_or("segment_size", SEGMENT_SIZE, |value| value.size(1 << 20..=1 << 34));
    let segment_age = section.value_or("segment_age", DAY, |value| value.duration(Duration::from_secs(60)..=DAY * 366));
    let retention = section.section("retention", |section| Ok(retention(section)));
    let unknown_per_second =
        section.value_or("unknown_per_second", UNKNOWN_PER_SECOND, |value| value.integer(0..=100_000));
    let low_water = section.value_or("low_water", LOW_WATER, low_water);
    let forms = [("coalesced", RefusalRecords::Coalesced), ("each", RefusalRecords::Each)];
    let refusals = section.value_or("refusals", RefusalRecords::Coalesced, |value| value.choice(&forms));
    let forms = [("full", Addresses::Full), ("shortened", Addresses::Shortened)];
    let addresses = section.value_or("addresses", Addresses::Full, |value| value.choice(&forms));
    let checkpoints = section.optional("checkpoints", |value| value.section(checkpoints));
    let retention = retention?;
    let checkpoints = checkpoints?;
    let age = retention.age?;
    let size = retention.size?;
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
        // An age that is configured asks for the journal to be kept for that long, whatever its size.
        retention_by_volume: age.is_none() && size.is_none(),
        retention_unshipped: retention.unshipped,
        low_water,
        unknown_per_second,
        refusals,
        addresses,
        gateway: gateway.to_owned(),
        checkpoints,
    })
}

fn checkpoints(section: &mut Section<'_>) -> Result<Checkpoints, Reported> {
    let key_file = section.required("key_file", |value| value.path());
    let origin = section.optional("origin", |value| value.text());
    let witnesses = section.value_or("witnesses", Vec::new(), |value| value.list(|value| value.section(witness)));
    Ok(Checkpoints { key_file: key_file?, origin: origin?, witnesses })
}

fn witness(section: &mut Section<'_>) -> Result<Witness, Reported> {
    let url = section.required("url", |value| {
        let url: HttpUrl = value.parsed("an address such as https://witness.example.org/prefix")?;
        if url.uri().query().is_none() { Ok(url) } else { value.reject("has a query; give an address without one") }
    });
    let public_key = section.required("public_key", |value| {
        let text = value.text()?;
        match text.parse::<PublicKey>() {
            Ok(key) if key.is_witness() => Ok(key),
            Ok(_) => value.reject("is the key of a log, not of a witness"),
            Err(error) => value.reject(error),
        }
    });
    let tls = section.section("tls", |section| Ok(ClientSettings::read(section)))?;
    let url = url?;
    let public_key = public_key?;
    // Its files are read once, so that an error is reported with its place.
    match url.is_encrypted().then(|| tls.config()) {
        Some(Err(error)) => Err(section.report("tls", error.in_full())),
        _ => Ok(Witness { url, public_key, tls }),
    }
}

fn retention(section: &mut Section<'_>) -> Retention {
    let age = section.optional("age", |value| value.duration(Duration::from_secs(3600)..=DAY * 36_600));
    let size = section.optional("size", |value| match value.text()?.as_str() {
        "never" => Ok(SizeLimit::Never),
        _ => value.size(1 << 20..=1 << 50).map(SizeLimit::Bytes),
    });
    let unshipped = section.value_or("unshipped", UNSHIPPED, |value| value.size(0..=1 << 50));
    Retention { age, size, unshipped }
}

/// Reads the treatment of requests while the journal cannot be written.
fn on_unavailable(value: &Value<'_>) -> Result<OnUnavailable, Reported> {
    if value.text()? == "drop" {
        return value.reject(
            "`drop` is called `serve_unrecorded`: requests are served without an audit record; give refuse or that",
        );
    }
    value.choice(&[("refuse", OnUnavailable::Refuse), ("serve_unrecorded", OnUnavailable::ServeUnrecorded)])
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
