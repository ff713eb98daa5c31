//! Instructions in user space, counted by callgrind between two orders, in a file for each thread.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Command that runs a program under callgrind, which writes its files into `directory`.
pub(crate) fn command(directory: &Path) -> Vec<String> {
    let out = format!("--callgrind-out-file={}/out", directory.display());
    let own = ["valgrind", "--tool=callgrind", "--separate-threads=yes", "--error-limit=no", "-q"];
    own.iter().map(ToString::to_string).chain([out]).collect()
}

/// Begins a count.
pub(crate) fn begin(process: u32) {
    control(process, "--zero");
}

/// Ends a count: the files are written when this returns.
pub(crate) fn end(process: u32) {
    control(process, "--dump=requests");
}

/// Copies the files of a count to the directory that `KEYGATE_PROFILES` names, if it is set, for `callgrind_annotate`.
pub(crate) fn keep_files(directory: &Path) {
    let Ok(kept) = std::env::var("KEYGATE_PROFILES") else { return };
    fs::create_dir_all(&kept).unwrap();
    for file in fs::read_dir(directory).unwrap().map(Result::unwrap) {
        fs::copy(file.path(), Path::new(&kept).join(file.file_name())).unwrap();
    }
}

/// File of the first count of a thread, by its place in the order in which the threads began. A thread that has
/// executed nothing has none.
pub(crate) fn file(directory: &Path, place: usize) -> PathBuf {
    directory.join(format!("out.1-{:02}", place + 1))
}

fn control(process: u32, order: &str) {
    let output = Command::new("callgrind_control").args([order, &process.to_string()]).output();
    let output = output.expect("valgrind is installed");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}
