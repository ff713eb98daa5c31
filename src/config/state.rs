//! The block `state`: the state that serves, embedded or on Redis.

use super::limits::Limits;
use super::redis::redis;
use platform::settings::{Reported, Section, Value};
use state::{Settings, embedded};

/// The states of a configuration.
pub(super) struct States {
    /// The state that serves.
    pub(super) serving: Settings,
    /// The embedded state beside a Redis state.
    pub(super) copy_from: Option<embedded::Settings>,
}

/// Reads the block `state`. Default limits stand in for `limits` with errors, so that errors of the state show as well.
pub(super) fn state(section: &mut Section<'_>, limits: Result<Limits, Reported>) -> Result<States, Reported> {
    let limits = limits.unwrap_or(Limits::DEFAULT);
    let embedded = section.optional("embedded", |value| value.section(|section| embedded(section, limits)));
    let redis = section.optional("redis", |value| value.section(|section| redis(section, limits)));
    match (redis?, embedded?) {
        // Redis serves when both are given; the embedded state is then only the source of a copy.
        (Some(redis), copy_from) => Ok(States { serving: Settings::Redis(Box::new(redis)), copy_from }),
        (None, Some(embedded)) => Ok(States { serving: Settings::Embedded(embedded), copy_from: None }),
        (None, None) => Err(section.report("embedded", "is missing, and so is `redis`; give the one that is to serve")),
    }
}

fn embedded(section: &mut Section<'_>, limits: Limits) -> Result<embedded::Settings, Reported> {
    let path = section.required("path", Value::path)?;
    Ok(embedded::Settings { path, quota: limits.quota, concurrent: limits.concurrent })
}
