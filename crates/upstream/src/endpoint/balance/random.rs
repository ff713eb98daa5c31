//! Random numbers of one worker, for choices that need no more than chance.

use std::cell::Cell;
use std::hash::{BuildHasher as _, Hasher as _, RandomState};

/// `SplitMix64` (Steele, Lea, Flood 2014).
#[derive(Debug)]
pub(crate) struct Random(Cell<u64>);

impl Default for Random {
    /// Numbers of a random beginning.
    fn default() -> Self {
        Self::new(RandomState::new().build_hasher().finish())
    }
}

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(Cell::new(seed))
    }

    fn next(&self) -> u64 {
        let state = self.0.get().wrapping_add(0x9E37_79B9_7F4A_7C15);
        self.0.set(state);
        mix(state)
    }

    /// A number from 0 to `bound`, without it.
    #[allow(clippy::cast_possible_truncation, reason = "the product's high half is below `bound`")]
    pub(crate) fn below(&self, bound: usize) -> usize {
        ((u128::from(self.next()) * bound as u128) >> 64) as usize
    }

    /// A number from 0 to 1, without 1.
    #[allow(clippy::cast_precision_loss, reason = "24 bits fit")]
    pub(crate) fn unit(&self) -> f32 {
        (self.next() >> 40) as f32 / (1_u64 << 24) as f32
    }
}

/// Finalizer of `SplitMix64`: each bit of the result depends on all of the argument's.
pub(super) fn mix(state: u64) -> u64 {
    let mixed = (state ^ (state >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    mixed ^ (mixed >> 31)
}
