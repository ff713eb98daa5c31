//! Settings of the state, and the default limits, which can change while a gateway runs.

use super::{embedded, redis};
use domain::quota::Quota;

/// Settings of one variant of the state.
#[derive(Clone, Debug)]
pub enum Settings {
    /// State in memory and SQLite.
    Embedded(embedded::Settings),
    /// State on Redis.
    Redis(Box<redis::Settings>),
}

/// Limits of keys and organizations without limits of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Defaults {
    /// Quota of a key.
    pub quota: Quota,
    /// Requests that an organization may have in flight.
    pub concurrent: u32,
}

impl Settings {
    /// The limits of keys and organizations without limits of their own.
    pub fn defaults(&self) -> Defaults {
        match self {
            Self::Embedded(settings) => settings.defaults(),
            Self::Redis(settings) => settings.defaults(),
        }
    }
}
