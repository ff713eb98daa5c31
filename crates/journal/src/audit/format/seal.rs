//! The digest of a closed segment: of its file, plain or compressed.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use data_encoding::HEXLOWER;
use sha2::{Digest as _, Sha256};

use super::line::EventKind;
use super::segment;
use super::segment_event::Seal;
use super::source::SegmentSource;
use crate::files;

/// Bytes that are read at a time.
const PIECE: usize = 64 * 1024;

/// Reads a segment and computes its seal; `None` when retention has removed the segment. The lines of a compressed one
/// are counted unless their number is given.
pub(crate) fn compute(directory: &Path, number: u64, lines: Option<u64>) -> io::Result<Option<Seal<'static>>> {
    let open = |path: PathBuf| files::if_found(File::open(path));
    let (file, compressed) = match open(segment::path(directory, number))? {
        Some(file) => (Some(file), false),
        None => (open(segment::compressed_path(directory, number))?, true),
    };
    let Some(mut file) = file else { return Ok(None) };
    let (sha256, newlines) = digest(&mut file)?;
    let lines = match lines {
        _ if !compressed => Some(newlines),
        Some(lines) => Some(lines),
        None => count_lines(directory, number)?,
    };
    // Retention may have removed the segment between the two readings.
    let Some(lines) = lines else { return Ok(None) };
    Ok(Some(Seal { e: EventKind::Seal, segment: number, lines, sha256: sha256.into(), compressed }))
}

/// The digest of a file, and the number of newlines in it.
fn digest(file: &mut File) -> io::Result<(String, u64)> {
    let mut digest = Sha256::new();
    let mut newlines = 0;
    let mut piece = vec![0; PIECE];
    loop {
        let read = file.read(&mut piece)?;
        if read == 0 {
            break;
        }
        digest.update(&piece[..read]);
        newlines += memchr::memchr_iter(b'\n', &piece[..read]).count() as u64;
    }
    Ok((HEXLOWER.encode(&digest.finalize()), newlines))
}

/// Counts the lines of a segment; `None` when retention has removed it.
fn count_lines(directory: &Path, number: u64) -> io::Result<Option<u64>> {
    let Some(mut source) = SegmentSource::open(directory, number)? else { return Ok(None) };
    let mut lines = 0;
    let mut at = 0;
    let mut piece = vec![0; PIECE];
    loop {
        match source.read_at(&mut piece, at)? {
            0 => return Ok(Some(lines)),
            read => {
                lines += memchr::memchr_iter(b'\n', &piece[..read]).count() as u64;
                at += read as u64;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use tempfile::TempDir;

    use super::*;

    /// A segment without lines would have another seal than the one that was written.
    #[test]
    fn removed_segment_has_no_lines_to_count() {
        let directory = TempDir::new().unwrap();
        assert_eq!(count_lines(directory.path(), 1).unwrap(), None);
        fs::write(segment::path(directory.path(), 1), "a\nb\n").unwrap();
        assert_eq!(count_lines(directory.path(), 1).unwrap(), Some(2));
        assert!(compute(directory.path(), 2, None).unwrap().is_none());
    }
}
