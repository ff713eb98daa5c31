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
pub(super) struct Look([u8; 32]);

/// Tells when the files hold something that nobody has taken notice of.
///
/// - What has changed is told when two looks in a row have seen the same: half a file is not.
/// - Each change is told once.
#[derive(Debug)]
pub(super) struct Watch {
    /// What was taken notice of.
    known: Look,
    /// What the look before saw, when it was something else.
    seen: Option<Look>,
}

impl Look {
    /// What no file holds.
    pub(super) const NOTHING: Self = Self([0; 32]);

    /// Reads the files.
    pub(super) fn at(files: &[PathBuf]) -> Self {
        let mut all = Sha256::new();
        files.iter().for_each(|file| all.update(of(file)));
        Self(all.finalize().into())
    }
}

/// Whether a path leads to something that can be read again and again. A pipe is read once.
pub(super) fn is_lasting(path: &Path) -> bool {
    fs::metadata(path).map_or(true, |metadata| metadata.is_file())
}

/// The hash of a file's content; zeros for one that cannot be read, or not again.
fn of(file: &Path) -> [u8; 32] {
    if !is_lasting(file) {
        return [0; 32];
    }
    fs::read(file).map_or([0; 32], |content| Sha256::digest(Zeroizing::new(content).as_slice()).into())
}

impl Watch {
    /// Nothing has changed since this look.
    pub(super) fn new(known: Look) -> Self {
        Self { known, seen: None }
    }

    /// Whether this look tells something new.
    pub(super) fn has_changed(&mut self, look: Look) -> bool {
        let is_news = look != self.known && self.seen == Some(look);
        if is_news {
            self.known = look;
        }
        self.seen = (look != self.known).then_some(look);
        is_news
    }

    /// Notice was taken of what this look saw.
    pub(super) fn notice(&mut self, look: Look) {
        *self = Self::new(look);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn look(n: u8) -> Look {
        Look([n; 32])
    }

    #[test]
    fn a_change_is_told_once_when_it_has_settled() {
        let mut watch = Watch::new(look(0));
        let told: Vec<bool> = [0, 1, 2, 2, 2, 0, 2, 0, 0, 0].map(|n| watch.has_changed(look(n))).to_vec();
        let expected = [false, false, false, true, false, false, false, false, true, false];
        assert_eq!(told, expected);
        assert!(!watch.has_changed(look(3)));
        watch.notice(look(3));
        assert!(!watch.has_changed(look(3)), "it was taken notice of");
    }

    #[test]
    fn a_pipe_never_changes_and_is_not_waited_for() {
        let dir = tempfile::tempdir().unwrap();
        let pipe = dir.path().join("pipe");
        assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        assert!(!is_lasting(&pipe));
        assert_eq!(Look::at(std::slice::from_ref(&pipe)), Look::at(&[pipe]));
    }

    #[test]
    fn a_look_sees_renames_links_and_absence() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        let files = [path("a"), path("b")];
        let mut looks = vec![Look::at(&files)];
        let mut step = |change: &dyn Fn()| {
            change();
            looks.push(Look::at(&files));
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
        let distinct: std::collections::HashSet<[u8; 32]> = looks.iter().map(|look| look.0).collect();
        assert_eq!(distinct.len(), looks.len());
        assert_eq!(Look::at(&files), looks[4]);
    }
}
