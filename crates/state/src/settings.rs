//! Settings of the state.

use super::{Defaults, embedded, redis};

/// Settings of one variant of the state.
#[derive(Clone, Debug)]
pub enum Settings {
    /// State in memory and SQLite.
    Embedded(embedded::Settings),
    /// State on Redis.
    Redis(Box<redis::Settings>),
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
