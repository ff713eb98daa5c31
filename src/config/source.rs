//! Source of a configuration: its file, and the hash of the content that was read.

use std::fmt;
use std::path::{Path, PathBuf};

use sha2::{Digest as _, Sha256};

/// File of a configuration, and the content that was read from it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigSource {
    /// Absolute path of the file.
    pub path: PathBuf,
    /// Path as it was given: relative paths in the file start there, and a reload reads it again.
    pub given: PathBuf,
    /// Hash of the content.
    pub hash: ContentHash,
}

/// The SHA-256 of a file's content. Displayed in hexadecimal, as `sha256sum` does.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct ContentHash([u8; 32]);

impl ConfigSource {
    pub(super) fn new(path: &Path, text: &str) -> Self {
        // Fails only without a working directory; the given path then has to do.
        let given = path.to_owned();
        let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
        Self { path, given, hash: ContentHash::from_content(text.as_bytes()) }
    }
}

impl ContentHash {
    /// Hashes a content.
    pub fn from_content(content: &[u8]) -> Self {
        Self(Sha256::digest(content).into())
    }
}

impl fmt::Display for ContentHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for ContentHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn content_hash_is_displayed_like_sha256sum() {
        let shown = ContentHash::from_content(b"").to_string();
        assert_eq!(shown, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    }
}
