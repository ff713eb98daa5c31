//! Permit of an admitted request, of either variant of the state.

use super::embedded::{Permit as EmbeddedPermit, SuccessorPermit};
use super::redis::slots::Permit as RedisPermit;

/// A slot of an organization, released on drop.
#[derive(Debug)]
pub enum Permit {
    /// Slot counted in memory.
    Embedded(EmbeddedPermit),
    /// Slot counted in Redis.
    Redis(RedisPermit),
    /// Slot counted by the process that this one has handed its state over to.
    Successor(SuccessorPermit),
}
