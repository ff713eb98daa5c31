//! Files of the repository, or of a directory of a test.

use std::fs;
use std::path::{Path, PathBuf};

/// The files of Rust in a folder and in those in it.
pub fn rust_files(folder: &Path) -> Vec<PathBuf> {
    let mut found = files(folder);
    found.retain(|path| path.extension().is_some_and(|extension| extension == "rs"));
    found
}

/// The files of a folder and of those in it; none when there is no such folder.
pub fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).into_iter().flatten() {
        let path = entry.unwrap().path();
        if !path.is_dir() {
            found.push(path);
        } else if !path.ends_with("node_modules") {
            found.extend(files(&path));
        }
    }
    found
}
