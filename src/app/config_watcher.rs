//! Configuration watcher: detects changed configuration files by their content.
//!
//! The content is read and compared once a second. The files are small, and comparing content detects every way of
//! changing them alike: in place, by a rename, by the swapped symbolic link of a Kubernetes volume, on any file
//! system. Kernel notifications (inotify) would need a different watch for each of these ways, because they are
//! about files and directories and not about the file that a path leads to, and on network and overlay file systems
//! they may never come.

use std::fs;
use std::path::{Path, PathBuf};

use sha2::{Digest as _, Sha256};
use zeroize::Zeroizing;

/// Fingerprint of the content of several files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Fingerprint([u8; 32]);

/// Detects changes in a sequence of fingerprints.
///
/// - A change is reported when two fingerprints in a row are the same, so that a half-written file is not.
/// - Each change is reported once.
#[derive(Debug)]
pub(super) struct ConfigWatcher {
    /// The fingerprint of the content that was reported, or applied, last.
    baseline: Fingerprint,
    /// The previous fingerprint, when it differs from the baseline.
    unconfirmed: Option<Fingerprint>,
}

impl Fingerprint {
    /// A fingerprint that no files have.
    pub(super) const UNKNOWN: Self = Self([0; 32]);

    /// Reads the files and hashes their content.
    pub(super) fn from_files(files: &[PathBuf]) -> Self {
        let mut all = Sha256::new();
        files.iter().for_each(|file| all.update(hash_file(file)));
        Self(all.finalize().into())
    }
}

/// Returns whether a path can be read more than once: true for a regular or missing file, false for a pipe.
pub(super) fn is_rereadable(path: &Path) -> bool {
    fs::metadata(path).map_or(true, |metadata| metadata.is_file())
}

/// The SHA-256 of a file's content; zeros for a file that cannot be read, or not again.
fn hash_file(file: &Path) -> [u8; 32] {
    // Opening a pipe would block the reload thread until something writes to it.
    if !is_rereadable(file) {
        return [0; 32];
    }
    // The configuration may hold secrets, so the buffer is cleared.
    fs::read(file).map_or([0; 32], |content| Sha256::digest(Zeroizing::new(content).as_slice()).into())
}

impl ConfigWatcher {
    pub(super) fn new(baseline: Fingerprint) -> Self {
        Self { baseline, unconfirmed: None }
    }

    /// Takes the next fingerprint. Returns whether it confirms a change, which is then the new baseline.
    pub(super) fn observe(&mut self, fingerprint: Fingerprint) -> bool {
        let is_change = fingerprint != self.baseline && self.unconfirmed == Some(fingerprint);
        if is_change {
            self.baseline = fingerprint;
        }
        self.unconfirmed = (fingerprint != self.baseline).then_some(fingerprint);
        is_change
    }

    /// Makes a fingerprint the baseline, without reporting a change.
    pub(super) fn set_baseline(&mut self, fingerprint: Fingerprint) {
        *self = Self::new(fingerprint);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fingerprint(n: u8) -> Fingerprint {
        Fingerprint([n; 32])
    }

    #[test]
    fn change_is_reported_once_when_two_fingerprints_agree() {
        let mut watcher = ConfigWatcher::new(fingerprint(0));
        let reported: Vec<bool> = [0, 1, 2, 2, 2, 0, 2, 0, 0, 0].map(|n| watcher.observe(fingerprint(n))).to_vec();
        let expected = [false, false, false, true, false, false, false, false, true, false];
        assert_eq!(reported, expected);
        assert!(!watcher.observe(fingerprint(3)));
        watcher.set_baseline(fingerprint(3));
        assert!(!watcher.observe(fingerprint(3)), "the baseline is no change");
    }

    #[test]
    fn pipe_has_a_constant_fingerprint_and_is_not_opened() {
        let dir = tempfile::tempdir().unwrap();
        let pipe = dir.path().join("pipe");
        assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        assert!(!is_rereadable(&pipe));
        assert_eq!(Fingerprint::from_files(std::slice::from_ref(&pipe)), Fingerprint::from_files(&[pipe]));
    }

    #[test]
    fn fingerprint_changes_with_content_renames_links_and_absence() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        let files = [path("a"), path("b")];
        let mut fingerprints = vec![Fingerprint::from_files(&files)];
        let mut step = |change: &dyn Fn()| {
            change();
            fingerprints.push(Fingerprint::from_files(&files));
        };
        step(&|| fs::write(path("a"), "1").unwrap());
        step(&|| fs::rename(path("a"), path("b")).unwrap());
        step(&|| {
            fs::create_dir(path("v1")).unwrap();
            fs::create_dir(path("v2")).unwrap();
            fs::write(path("v1/a"), "one").unwrap();
            fs::write(path("v2/a"), "two").unwrap();
            std::os::unix::fs::symlink("v1", path("..data")).unwrap();
            std::os::unix::fs::symlink("..data/a", path("a")).unwrap();
        });
        step(&|| {
            std::os::unix::fs::symlink("v2", path("..new")).unwrap();
            fs::rename(path("..new"), path("..data")).unwrap();
        });
        let distinct: std::collections::HashSet<[u8; 32]> = fingerprints.iter().map(|each| each.0).collect();
        assert_eq!(distinct.len(), fingerprints.len());
        assert_eq!(Fingerprint::from_files(&files), fingerprints[4]);
    }
}
