//! The house: what the compiler cannot hold. The walls between crates are in their `Cargo.toml`.

mod circles;
mod columns;
mod imports;
mod style;

use std::fs;
use std::path::{Path, PathBuf};

use crate::support::files::rust_files;

#[test]
fn data_plane_does_not_import_the_control_plane() {
    let is_import = |line: &&str| line.contains("control::") && !line.trim_start().starts_with("//");
    for room in ["src/gateway", "src/admission"] {
        for file in rust_files(Path::new(room)) {
            let text = fs::read_to_string(&file).unwrap();
            let imports: Vec<&str> = text.lines().filter(is_import).collect();
            assert!(imports.is_empty(), "{}: {imports:?}", file.display());
        }
    }
}

#[test]
fn files_begin_with_their_documentation() {
    let silent: Vec<PathBuf> =
        product_files().into_iter().filter(|file| !fs::read_to_string(file).unwrap().starts_with("//!")).collect();
    assert!(silent.is_empty(), "{silent:?}");
}

/// The files of the gateway and of all crates.
fn product_files() -> Vec<PathBuf> {
    [rust_files(Path::new("src")), rust_files(Path::new("crates"))].concat()
}
