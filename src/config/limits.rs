//! The blocks `limits` and `state`: what everybody may do, and where it is counted.

use std::time::Duration;

use super::redis::redis;
use crate::quota::{MAX_PER, MAX_TOKENS, Quota};
use crate::settings::{Section, Value};
use crate::state::{self, embedded};

/// Requests an organization may have in flight, as promised.
const CONCURRENT: u32 = 100;

/// A person who mistypes a key, or a fleet that still has an old one, does not try more often.
const BAD_KEYS: Quota = Quota { requests: 100, per: Duration::from_secs(60), burst: 100 };

/// The block `limits`: what those may do who have no limits of their own.
#[derive(Clone, Copy)]
pub(super) struct Limits {
    pub(super) quota: Quota,
    pub(super) concurrent: u32,
    /// Attempts with bad keys from one address.
    pub(super) bad_keys: Quota,
}

impl Limits {
    const DEFAULT: Self = Self { quota: Quota::DEFAULT, concurrent: CONCURRENT, bad_keys: BAD_KEYS };
}

pub(super) fn limits(section: &mut Section<'_>) -> Limits {
    let default = Limits::DEFAULT;
    let key = section.section("key", |section| quota(section, default.quota));
    let bad_keys = section.section("bad_keys", |section| quota(section, default.bad_keys));
    let concurrent = section
        .section("org", |org| org.optional("concurrent", default.concurrent, |value| value.integer(1..=1_000_000)));
    Limits {
        quota: key.unwrap_or(default.quota),
        concurrent: concurrent.unwrap_or(default.concurrent),
        bad_keys: bad_keys.unwrap_or(default.bad_keys),
    }
}

fn quota(section: &mut Section<'_>, default: Quota) -> Quota {
    let tokens = 1..=MAX_TOKENS;
    let requests = section.optional("requests", default.requests, |value| value.integer(tokens.clone()));
    let per = section.optional("per", default.per, |value| {
        let per = value.duration(Duration::from_secs(1)..=MAX_PER)?;
        if per.subsec_nanos() == 0 { Some(per) } else { value.reject("is not whole seconds; round it") }
    });
    let burst = section.optional("burst", requests, |value| value.integer(tokens));
    let quota = Quota { requests, per, burst };
    if let Err(e) = quota.checked() {
        section.report("burst", format_args!("{e}; make burst or per smaller"));
    }
    quota
}

/// The state that serves, and the embedded one beside a Redis one.
///
/// Limits that could not be read were reported; the defaults stand in for them, so that problems of the state show, too.
pub(super) fn state(
    section: &mut Section<'_>,
    limits: Option<Limits>,
) -> Option<(state::Settings, Option<embedded::Settings>)> {
    let limits = limits.unwrap_or(Limits::DEFAULT);
    if !section.contains("embedded") && !section.contains("redis") {
        section.report("embedded", "is missing, and so is `redis`; give the one that is to serve");
    }
    let embedded = section.maybe("embedded", |value| value.section(|section| embedded(section, limits)));
    let redis = section.maybe("redis", |value| value.section(|section| redis(section, limits)));
    match redis {
        Some(redis) => Some((state::Settings::Redis(Box::new(redis)), embedded)),
        None => Some((state::Settings::Embedded(embedded?), None)),
    }
}

fn embedded(section: &mut Section<'_>, limits: Limits) -> Option<embedded::Settings> {
    let path = section.required("path", Value::path)?;
    Some(embedded::Settings { path, quota: limits.quota, concurrent: limits.concurrent })
}
