//! Fields of lines: buckets, quotas, digests, actors.

use std::time::Duration;

use data_encoding::HEXLOWER;
use serde::{Deserialize, Serialize};

use super::invalid_record::InvalidRecord;
use crate::bucket::{Bucket, capacity};
use crate::{ActorName, InvalidPolicy, Key, KeyActors, KeyEvent, OrgPolicy, UnusedKeys, duration_text};
use domain::clock::Micros;
use domain::key::{InvalidDigest, KeyDigest};
use domain::names::InvalidName;
use domain::quota::{EXACT, Quota};

/// A level in units of `1/per_us` tokens, at a time in microseconds since the Unix epoch.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct CreationLine {
    pub(super) level: i64,
    pub(super) at: Micros,
    pub(super) per_us: u64,
}

/// The same, with the quota that it is measured in: `requests` flow in during each `per_us`, up to `burst`.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct BucketLine {
    pub(super) level: i64,
    pub(super) at: Micros,
    pub(super) requests: u32,
    pub(super) per_us: u64,
    pub(super) burst: u32,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct QuotaLine {
    pub(super) requests: u32,
    pub(super) per_s: u64,
    pub(super) burst: u32,
}

/// The policy of an organization, with durations as texts.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PolicyLine {
    #[serde(default, with = "duration_text::option", skip_serializing_if = "Option::is_none")]
    max_expiry: Option<Duration>,
    #[serde(default, with = "duration_text::option", skip_serializing_if = "Option::is_none")]
    default_expiry: Option<Duration>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    unused_keys: Option<UnusedKeys>,
}

impl From<OrgPolicy> for PolicyLine {
    fn from(policy: OrgPolicy) -> Self {
        let OrgPolicy { max_expiry, default_expiry, unused_keys } = policy;
        Self { max_expiry, default_expiry, unused_keys }
    }
}

impl PolicyLine {
    pub(super) fn into_policy(self) -> Result<OrgPolicy, InvalidPolicy> {
        let Self { max_expiry, default_expiry, unused_keys } = self;
        OrgPolicy { max_expiry, default_expiry, unused_keys }.validate()
    }
}

impl BucketLine {
    /// The bucket, and the quota that it is measured in.
    pub(super) fn parse(&self) -> Result<(Bucket, Quota), InvalidRecord> {
        let Self { level, at, requests, per_us, burst } = *self;
        let quota = Quota { requests, per: Duration::from_micros(per_us), burst, strict: false }.validate()?;
        let full = i64::try_from(capacity(quota)).unwrap_or(i64::MAX);
        let in_range = level <= full && level.unsigned_abs() < EXACT;
        if in_range { Ok((Bucket { level, at }, quota)) } else { Err(InvalidRecord::Level) }
    }
}

pub(super) fn hex(digest: &KeyDigest) -> String {
    HEXLOWER.encode(digest.as_bytes())
}

pub(super) fn hex_all(digests: &[KeyDigest]) -> Vec<String> {
    digests.iter().map(hex).collect()
}

pub(super) fn parse_all(digests: &[String]) -> Result<Vec<KeyDigest>, InvalidDigest> {
    digests.iter().map(|digest| KeyDigest::from_hex(digest)).collect()
}

/// The actors of a key by the order of the events, each of an event that the key has.
pub(super) fn parse_actors(key: &Key, by: [Option<ActorName>; 3]) -> Result<KeyActors, InvalidRecord> {
    let mut actors = KeyActors::default();
    for (event, actor) in KeyEvent::ALL.into_iter().zip(by) {
        let Some(actor) = actor else { continue };
        let at = event.time_of(key).filter(|_| actor.is_valid());
        actors.record(event, at.ok_or_else(|| InvalidRecord::Actor(actor.to_string()))?, actor);
    }
    Ok(actors)
}

/// Checks the name of a record, by what its creation makes of it.
pub(super) fn check_name(name: &str, created: Result<String, InvalidName>) -> Result<(), InvalidRecord> {
    let created = created.map_err(|reason| InvalidRecord::Name { name: name.to_owned(), reason })?;
    check_normalized(name, &created)
}

pub(super) fn check_normalized(text: &str, created: &str) -> Result<(), InvalidRecord> {
    if text == created { Ok(()) } else { Err(InvalidRecord::NotNormalized(text.to_owned())) }
}
