//! The last rotation of a key, as far as another one depends on it.

use domain::clock::Micros;
use domain::key::KeyId;

use super::ChangeError;

/// The last rotation of a key, as far as a rotation depends on it: who rotates a key that was rotated since they looked
/// at it would replace a secret that was just handed out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LastRotation {
    /// Any, or none.
    #[default]
    Any,
    /// None: the key has its first secret.
    Never,
    /// The one at this time.
    At(Micros),
}

impl LastRotation {
    /// Checks the time of a key's last rotation.
    ///
    /// # Errors
    /// [`ChangeError::Rotated`] when it is another one.
    pub(super) fn check(self, key: KeyId, rotated: Option<Micros>) -> Result<(), ChangeError> {
        if self == Self::Any || self == Self::from(rotated) {
            Ok(())
        } else {
            Err(ChangeError::Rotated { key, rotated })
        }
    }
}

impl From<Option<Micros>> for LastRotation {
    fn from(rotated: Option<Micros>) -> Self {
        rotated.map_or(Self::Never, Self::At)
    }
}
