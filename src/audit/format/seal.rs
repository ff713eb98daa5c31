//! The digest of a closed segment.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;

use sha2::{Digest as _, Sha256};

use super::line::EventKind;
use super::segment;
use super::segment_event::Seal;

/// Reads a segment and computes its seal; `None` when retention has removed the segment.
pub(crate) fn compute(directory: &Path, number: u64) -> io::Result<Option<Seal<'static>>> {
    let mut file = match File::open(segment::path(directory, number)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        file => file?,
    };
    let mut digest = Sha256::new();
    let mut lines = 0;
    let mut piece = vec![0; 64 * 1024];
    loop {
        let read = file.read(&mut piece)?;
        if read == 0 {
            break;
        }
        digest.update(&piece[..read]);
        lines += piece[..read].iter().filter(|byte| **byte == b'\n').count() as u64;
    }
    let sha256 = digest.finalize().iter().map(|byte| format!("{byte:02x}")).collect::<String>().into();
    Ok(Some(Seal { e: EventKind::Seal, segment: number, lines, sha256 }))
}
