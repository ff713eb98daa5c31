//! Secret text, zeroed on drop and never shown by `Debug`; the comparison of digests of secrets; and sealed
//! tokens, such as cursors.

mod sealed_token;

use std::fmt;

use subtle::ConstantTimeEq as _;
use zeroize::Zeroizing;

pub use sealed_token::{SealedToken, TokenKey};

/// A secret. `Debug` prints a placeholder, there is no `Display`, and the memory is zeroed on drop.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(Zeroizing<String>);

impl Secret {
    /// Wraps a text.
    pub fn new(text: String) -> Self {
        Self(Zeroizing::new(text))
    }

    /// The plain text, for the one place that needs it.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

/// Compares two digests in constant time: in words, which takes an eighth of the time that it takes byte by byte.
pub fn digests_match(left: &[u8; 32], right: &[u8; 32]) -> bool {
    words(left).ct_eq(&words(right)).into()
}

fn words(digest: &[u8; 32]) -> [u64; 4] {
    let (words, _) = digest.as_chunks();
    std::array::from_fn(|index| u64::from_ne_bytes(words[index]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digests_match_only_in_every_bit() {
        let digest: [u8; 32] = std::array::from_fn(|index| u8::try_from(index * 7).unwrap());
        assert!(digests_match(&digest, &digest.clone()));
        for bit in 0..256 {
            let mut other = digest;
            other[bit / 8] ^= 1 << (bit % 8);
            assert!(!digests_match(&digest, &other), "{bit}");
        }
    }

    #[test]
    fn debug_shows_a_placeholder() {
        assert_eq!(format!("{:?}", Secret::new("hunter2".into())), "Secret(…)");
    }
}
