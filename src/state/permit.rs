//! Permit of an admitted request, of either variant of the state.

use super::{embedded, redis};

/// A slot of an organization, released on drop.
#[derive(Debug)]
pub enum Permit {
    /// Slot counted in memory.
    Embedded(embedded::Permit),
    /// Slot counted in Redis.
    Redis(redis::Permit),
}
