//! How the state is set up, and what of that can change while it runs.

use super::{embedded, redis};
use crate::quota::Quota;

/// How the state is set up, and which variant of it.
#[derive(Clone, Debug)]
pub enum Settings {
    /// In memory and SQLite.
    Embedded(embedded::Settings),
    /// On Redis.
    Redis(Box<redis::Settings>),
}

/// The limits of those who have none of their own: what of the settings can change while a gateway runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Defaults {
    /// Of a key.
    pub quota: Quota,
    /// Requests that an organization may have in flight.
    pub concurrent: u32,
}

impl Settings {
    /// The limits of those who have none of their own.
    pub fn defaults(&self) -> Defaults {
        match self {
            Self::Embedded(settings) => settings.defaults(),
            Self::Redis(settings) => settings.defaults(),
        }
    }
}
