//! Text that must not be seen: zeroed when dropped, and shown by nothing.

use std::fmt;

use zeroize::Zeroizing;

/// A secret. `Debug` prints a placeholder, there is no `Display`, and the memory is zeroed on drop.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(Zeroizing<String>);

impl Secret {
    /// Takes a text into custody.
    pub fn new(text: String) -> Self {
        Self(Zeroizing::new(text))
    }

    /// The text itself, for the one place that needs it.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debug_shows_nothing() {
        assert_eq!(format!("{:?}", Secret::new("hunter2".into())), "Secret(…)");
    }
}
