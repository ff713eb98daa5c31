//! Base62: the letters and digits of ids, secrets and checksums of keys and management tokens.

/// Characters of a secret: 62^43 > 2^256.
pub(crate) const SECRET_LENGTH: usize = 43;
/// Characters of a checksum: 62^6 > 2^32.
pub(crate) const CHECKSUM_LENGTH: usize = 6;
/// The digits of base62, in the order of their value.
const BASE62: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

/// The CRC-32 of `covered` in base62, most significant digit first.
pub(crate) fn checksum(covered: &[u8]) -> [u8; CHECKSUM_LENGTH] {
    let mut rest = crc32fast::hash(covered);
    let mut digits = [0; CHECKSUM_LENGTH];
    for digit in digits.iter_mut().rev() {
        *digit = BASE62[(rest % 62) as usize];
        rest /= 62;
    }
    digits
}

/// Generates `N` base62 characters, each equally likely: bytes of 248 and above are discarded, because
/// 248 is four times 62.
pub(crate) fn random_base62<const N: usize>() -> Result<[u8; N], getrandom::Error> {
    let mut text = [0; N];
    let mut filled = 0;
    while filled < N {
        let mut random = zeroize::Zeroizing::new([0; 64]);
        getrandom::fill(random.as_mut())?;
        for byte in random.iter().filter(|byte| **byte < 248).take(N - filled) {
            text[filled] = BASE62[usize::from(byte % 62)];
            filled += 1;
        }
    }
    Ok(text)
}

/// Text forms of an id of base62 characters.
macro_rules! base62_text {
    ($type:ident, $length:expr) => {
        impl std::str::FromStr for $type {
            type Err = $crate::key::InvalidId;

            fn from_str(text: &str) -> Result<Self, $crate::key::InvalidId> {
                let invalid = $crate::key::InvalidId::of_length($length);
                let bytes: [u8; $length] = text.as_bytes().try_into().map_err(|_| invalid)?;
                bytes.iter().all(u8::is_ascii_alphanumeric).then_some(Self(bytes)).ok_or(invalid)
            }
        }

        impl std::fmt::Display for $type {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.pad(self.as_str())
            }
        }

        impl std::fmt::Debug for $type {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.as_str())
            }
        }

        impl serde::Serialize for $type {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(self.as_str())
            }
        }

        impl<'de> serde::Deserialize<'de> for $type {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text = <std::borrow::Cow<'de, str> as serde::Deserialize>::deserialize(deserializer)?;
                text.parse().map_err(serde::de::Error::custom)
            }
        }
    };
}

pub(crate) use base62_text;
