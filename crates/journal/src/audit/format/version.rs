//! Version of the format of a journal. A journal of another version is refused: it is neither read nor continued.
//!
//! The number is in the header of each segment, at the beginning of each frame of a compressed one, and in the first
//! line of a spool and of the file of hashes. It is one number for all of them, counted up whenever a reader of the
//! version before would misread one.

use std::fmt::Display;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use serde::Deserialize;

use super::{frame, line};

/// Version that this program writes and reads.
pub(crate) const VERSION: u8 = 2;
/// The version in a header.
#[derive(Deserialize)]
struct Versioned {
    version: Option<u8>,
}

/// Bytes of a header that is read whole, to be sure that it is of another version.
const LONG_HEADER: usize = 256 << 10;
/// First bytes of a plain segment of this version.
const BEGINNING: &[u8; 26] = b"{\"e\":\"header\",\"version\":2,";

/// Checks the version that a file names.
///
/// # Errors
/// [`io::ErrorKind::Unsupported`] when it is another one.
pub(crate) fn check(found: u8, file: impl Display) -> io::Result<()> {
    if found == VERSION { Ok(()) } else { Err(other_version(format_args!("format version {found}"), file)) }
}

fn other_version(found: impl Display, file: impl Display) -> io::Error {
    let message = format!(
        "{file} has {found}, and this keygate reads and writes version {VERSION} only; use the keygate that wrote it, \
         or set `audit.path` to a new directory"
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
    let mut bytes = vec![0; LONG_HEADER];
    let read = file.read_at(&mut bytes, 0)?;
    let first = line::split_lines(&bytes[..read]).next().map(|(_, line)| line);
    let header = first.filter(|line| line.starts_with(b"{\"e\":\"header\"") && frame::verify_line(line).is_some());
    match header.map(serde_json::from_slice::<Versioned>) {
        Some(Ok(Versioned { version: Some(found) })) => check(found, path.display()),
        Some(_) => Err(other_version("no format version", path.display())),
        None => Ok(()),
    }
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
