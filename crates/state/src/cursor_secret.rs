//! Secret of an installation that the cursors of lists are sealed with: made once, kept in the state, and the same on
//! all gateways that share it.

use std::fmt;

use zeroize::Zeroizing;

/// 256 random bits. `Debug` does not show them, and the memory is zeroed on drop.
#[derive(Clone)]
pub struct CursorSecret(Zeroizing<[u8; 32]>);

impl CursorSecret {
    /// Generates a random secret.
    ///
    /// # Errors
    /// The operating system provides no randomness.
    pub(super) fn generate() -> Result<Self, getrandom::Error> {
        let mut bytes = Zeroizing::new([0; 32]);
        getrandom::fill(&mut *bytes)?;
        Ok(Self(bytes))
    }

    /// Makes a secret from its 32 bytes, as it is stored.
    pub fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(Zeroizing::new(bytes))
    }

    /// The 32 bytes.
    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

impl fmt::Debug for CursorSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CursorSecret(…)")
    }
}
