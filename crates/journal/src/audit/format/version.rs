//! Version of the format of a journal. A journal of another version is refused: it is neither read nor continued.
//!
//! The number is in the header of each segment, at the beginning of each frame of a compressed one, and in the first line of a
//! spool. It is one number for all of them, counted up whenever a reader of the version before would misread one.

use std::fmt::Display;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use serde::Deserialize;

use super::segment::BLOCK;
use super::{frame, line};

/// Version that this program writes and reads.
pub(crate) const VERSION: u8 = 1;
/// First bytes of a plain segment of this version.
const BEGINNING: &[u8; 26] = b"{\"e\":\"header\",\"version\":1,";

/// The error for a file of another version; `None` when it names none.
pub(crate) fn other_version(file: impl Display, found: Option<u64>) -> io::Error {
    let found = found.map_or_else(|| "no format version".to_owned(), |found| format!("format version {found}"));
    let message = format!(
        "{file} has {found}, and this keygate reads and writes version {VERSION} only; use the keygate that wrote it, or set \
         `audit.path` to a new directory"
    );
    io::Error::new(io::ErrorKind::Unsupported, message)
}

/// Checks the version of a plain segment. One whose header is damaged, or not written yet, has none to check.
///
/// # Errors
/// [`io::ErrorKind::Unsupported`] when it is another one.
pub(crate) fn check_plain(path: &Path, file: &File) -> io::Result<()> {
    let mut beginning = [0; BEGINNING.len()];
    file.read_at(&mut beginning, 0)?;
    if &beginning == BEGINNING {
        return Ok(());
    }
    let mut bytes = vec![0; BLOCK as usize];
    let read = file.read_at(&mut bytes, 0)?;
    let first = line::split_lines(&bytes[..read]).next().map(|(_, line)| line);
    let header = first.filter(|line| line.starts_with(b"{\"e\":\"header\"") && frame::verify_line(line).is_some());
    match header.map(version_in) {
        Some(found) if found != Some(VERSION.into()) => Err(other_version(path.display(), found)),
        _ => Ok(()),
    }
}

/// The version that a line of JSON names.
fn version_in(line: &[u8]) -> Option<u64> {
    #[derive(Deserialize)]
    struct Versioned {
        version: Option<u64>,
    }
    serde_json::from_slice::<Versioned>(line).ok()?.version
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::audit::format::frame::Line as _;
    use crate::audit::format::segment;

    fn check(header: &serde_json::Value) -> io::Result<()> {
        let directory = tempfile::tempdir().unwrap();
        let path = segment::path(directory.path(), 1);
        let mut line = Vec::new();
        frame::with_serialized(header, |body| body.write_line(1, &mut line));
        std::fs::write(&path, &line).unwrap();
        let checked = check_plain(&path, &File::open(&path).unwrap());
        // A damaged header is damage, and no other version.
        line[30] ^= 1;
        std::fs::write(&path, &line).unwrap();
        check_plain(&path, &File::open(&path).unwrap()).unwrap();
        checked
    }

    #[test]
    fn segment_of_another_version_is_refused() {
        check(&serde_json::json!({"e": "header", "version": VERSION, "segment": 1})).unwrap();
        check(&serde_json::json!({"e": "record", "version": 7, "segment": 1})).unwrap();
        for (header, found) in [
            (serde_json::json!({"e": "header", "version": 7, "segment": 1}), "has format version 7,"),
            (serde_json::json!({"e": "header", "segment": 1, "open": []}), "has no format version,"),
        ] {
            let error = check(&header).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::Unsupported);
            assert!(error.to_string().contains(found), "{error}");
        }
    }
}
