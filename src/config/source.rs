//! Which file a configuration is of, and which content of it.

use std::fmt;
use std::path::{Path, PathBuf};

use sha2::{Digest as _, Sha256};

/// The file of a configuration, as it was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigSource {
    /// The file, from the root of the file system.
    pub path: PathBuf,
    /// The file as it was given: what relative paths in it are relative to, and what to read again.
    pub given: PathBuf,
    /// Its content.
    pub hash: ContentHash,
}

/// The SHA-256 of a file's content. Displayed in hexadecimal, as `sha256sum` does.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct ContentHash([u8; 32]);

impl ConfigSource {
    pub(super) fn new(path: &Path, text: &str) -> Self {
        // It fails only without a working directory: then the path is as good as it was given.
        let given = path.to_owned();
        let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
        Self { path, given, hash: ContentHash::from_content(text.as_bytes()) }
    }
}

impl ContentHash {
    /// The hash of a content.
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
    fn a_hash_is_shown_as_sha256sum_shows_it() {
        let shown = ContentHash::from_content(b"").to_string();
        assert_eq!(shown, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    }
}
