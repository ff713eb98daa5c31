//! Whether the configuration's files have changed.
//!
//! Their content is read and compared once a second. They are small, and this sees every way of changing them, in place,
//! by a rename, by the swapped symbolic link of a Kubernetes volume, alike and on every file system, also on those that
//! tell nobody of changes. Notifications of the kernel (inotify) are about files and directories, not about what a path
//! leads to: each of these ways needs watches of its own, and on network and overlay file systems they may never come.

use std::fs;
use std::path::{Path, PathBuf};

use sha2::{Digest as _, Sha256};
use zeroize::Zeroizing;

/// What the files hold at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Fingerprint([u8; 32]);

/// Tells when the files hold something that nobody has taken set_baseline of.
///
/// - What has changed is told when two looks in a row have seen the same: half a file is not.
/// - Each change is told once.
#[derive(Debug)]
pub(super) struct ConfigWatcher {
    /// What was taken set_baseline of.
    known: Fingerprint,
    /// What the fingerprint before saw, when it was something else.
    seen: Option<Fingerprint>,
}

impl Fingerprint {
    /// What no file holds.
    pub(super) const UNKNOWN: Self = Self([0; 32]);

    /// Reads the files.
    pub(super) fn from_files(files: &[PathBuf]) -> Self {
        let mut all = Sha256::new();
        files.iter().for_each(|file| all.update(of(file)));
        Self(all.finalize().into())
    }
}

/// Whether a path leads to something that can be read again and again. A pipe is read once.
pub(super) fn is_rereadable(path: &Path) -> bool {
    fs::metadata(path).map_or(true, |metadata| metadata.is_file())
}

/// The hash of a file's content; zeros for one that cannot be read, or not again.
fn of(file: &Path) -> [u8; 32] {
    if !is_rereadable(file) {
        return [0; 32];
    }
    fs::read(file).map_or([0; 32], |content| Sha256::digest(Zeroizing::new(content).as_slice()).into())
}

impl ConfigWatcher {
    /// Nothing has changed since this fingerprint.
    pub(super) fn new(known: Fingerprint) -> Self {
        Self { known, seen: None }
    }

    /// Whether this fingerprint tells something new.
    pub(super) fn observe(&mut self, fingerprint: Fingerprint) -> bool {
        let is_news = fingerprint != self.known && self.seen == Some(fingerprint);
        if is_news {
            self.known = fingerprint;
        }
        self.seen = (fingerprint != self.known).then_some(fingerprint);
        is_news
    }

    /// Notice was taken of what this fingerprint saw.
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
    fn a_change_is_told_once_when_it_has_settled() {
        let mut watch = ConfigWatcher::new(fingerprint(0));
        let told: Vec<bool> = [0, 1, 2, 2, 2, 0, 2, 0, 0, 0].map(|n| watch.observe(fingerprint(n))).to_vec();
        let expected = [false, false, false, true, false, false, false, false, true, false];
        assert_eq!(told, expected);
        assert!(!watch.observe(fingerprint(3)));
        watch.set_baseline(fingerprint(3));
        assert!(!watch.observe(fingerprint(3)), "it was taken set_baseline of");
    }

    #[test]
    fn a_pipe_never_changes_and_is_not_waited_for() {
        let dir = tempfile::tempdir().unwrap();
        let pipe = dir.path().join("pipe");
        assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        assert!(!is_rereadable(&pipe));
        assert_eq!(Fingerprint::from_files(std::slice::from_ref(&pipe)), Fingerprint::from_files(&[pipe]));
    }

    #[test]
    fn a_look_sees_renames_links_and_absence() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        let files = [path("a"), path("b")];
        let mut looks = vec![Fingerprint::from_files(&files)];
        let mut step = |change: &dyn Fn()| {
            change();
            looks.push(Fingerprint::from_files(&files));
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
        let distinct: std::collections::HashSet<[u8; 32]> = looks.iter().map(|fingerprint| fingerprint.0).collect();
        assert_eq!(distinct.len(), looks.len());
        assert_eq!(Fingerprint::from_files(&files), looks[4]);
    }
}
