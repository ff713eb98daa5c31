//! The block `state`: the state that serves, embedded or on Redis.

use super::limits::Limits;
use super::redis::redis;
use platform::settings::{Reported, Section, Value};
use state::{Settings, embedded};

/// Reads the block `state`. Default limits stand in for `limits` with errors, so that errors of the state show as well.
pub(super) fn state(section: &mut Section<'_>, limits: Result<Limits, Reported>) -> Result<Settings, Reported> {
    let limits = limits.unwrap_or(Limits::DEFAULT);
    let embedded = section.optional("embedded", |value| value.section(|section| embedded(section, limits)));
    let redis = section.optional("redis", |value| value.section(|section| redis(section, limits)));
    match (redis?, embedded?) {
        (Some(redis), None) => Ok(Settings::Redis(Box::new(redis))),
        (None, Some(embedded)) => Ok(Settings::Embedded(embedded)),
        (Some(_), Some(_)) => Err(section.report(
            "embedded",
            "set either `embedded` or `redis`, not both; to move: `keygate state export` with one of them, \
             `keygate state import` with the other",
        )),
        (None, None) => Err(section.report("embedded", "is missing, and so is `redis`; give the one that is to serve")),
    }
}

fn embedded(section: &mut Section<'_>, limits: Limits) -> Result<embedded::Settings, Reported> {
    let path = section.required("path", Value::path)?;
    Ok(embedded::Settings { path, quota: limits.quota, concurrent: limits.concurrent })
}
