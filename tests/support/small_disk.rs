//! A small file system that a test can fill to its last byte.

use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::eventually;

/// Set in a test process that runs within a namespace of its own.
const WITHIN: &str = "KEYGATE_WITHIN_NAMESPACE";

/// A tmpfs, unmounted when the test ends.
pub struct SmallDisk {
    directory: tempfile::TempDir,
}

impl SmallDisk {
    /// Mounts a file system of some MiB. Without the right to mount, the test is run again within a user namespace, and
    /// `None` is returned when it has passed there. `test` is its full name.
    pub fn mount(test: &str, mebibytes: u32) -> Option<Self> {
        Self::mount_with(test, &format!("size={mebibytes}m,mode=700"))
    }

    /// The same with room for so many files.
    pub fn with_files(test: &str, mebibytes: u32, files: u32) -> Option<Self> {
        Self::mount_with(test, &format!("size={mebibytes}m,mode=700,nr_inodes={files}"))
    }

    fn mount_with(test: &str, options: &str) -> Option<Self> {
        let directory = tempfile::tempdir().unwrap();
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", options, "tmpfs"]).arg(directory.path());
        let mounted = mount.output().expect("mount (package mount) is installed");
        if mounted.status.success() {
            return Some(Self { directory });
        }
        let reason = String::from_utf8_lossy(&mounted.stderr).into_owned();
        assert!(
            std::env::var_os(WITHIN).is_none(),
            "a small file system cannot be mounted within a namespace: {reason}"
        );
        let mut again = Command::new("unshare");
        again.args(["--user", "--map-root-user", "--mount"]).arg(std::env::current_exe().unwrap());
        again.args(["--exact", test, "--nocapture", "--include-ignored"]).env(WITHIN, "1");
        let output = again.output().expect("unshare (package util-linux) is installed");
        let stdout = String::from_utf8_lossy(&output.stdout);
        assert!(
            output.status.success() && stdout.contains("1 passed"),
            "this test mounts a small file system: run it as root, or where user namespaces are allowed\n{reason}\n\
             {stdout}{}",
            String::from_utf8_lossy(&output.stderr)
        );
        None
    }

    pub fn path(&self) -> &Path {
        self.directory.path()
    }

    /// Fills the file system to its last byte, with one file, also while a process still gives some back.
    pub fn fill(&self) {
        let mut file = File::options().create(true).append(true).open(self.filler()).unwrap();
        eventually("the file system is full", || {
            for size in [1 << 20, 4096, 1] {
                while file.write(&vec![b'x'; size]).is_ok_and(|written| written > 0) {}
            }
            self.free() == 0
        });
    }

    /// Removes the file that fills the file system.
    pub fn make_room(&self) {
        std::fs::remove_file(self.filler()).unwrap();
    }

    /// Bytes that are free.
    pub fn free(&self) -> u64 {
        platform::disk::volume_space(self.path()).unwrap().free
    }

    fn filler(&self) -> PathBuf {
        self.path().join("filler")
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // Lazily: a gateway that a failed test has left may still have files open.
        Command::new("umount").arg("-l").arg(self.path()).status().ok();
    }
}
