//! Spool: the file that lines go to while another process, the successor, has the journal.
//!
//! - It lies in the journal's directory and is named after the segment that was open at the hand-over. Its first line
//!   lists the uses that were open then, the others are lines of a journal.
//! - Its process holds a lock on it. When the lock is free, the process has ended, and the spool is complete.
//! - The successor appends its lines to the journal ([`super::predecessor`]) and removes it.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// Beginning of the name.
const PREFIX: &str = "predecessor-";

/// The spool of this process. Dropped, it gives its lock back, by which the successor knows that nothing more comes;
/// the file stays.
#[derive(Debug)]
pub(crate) struct Spool {
    /// Holds the lock.
    file: File,
    path: PathBuf,
    /// Length of the first line.
    start: u64,
}

/// The first line.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct SpoolHeader {
    /// Version of the journal's format.
    pub(crate) version: u8,
    /// Uses of the process that are open in the journal, or were when lines before their outcomes were written.
    pub(crate) open: Vec<Uuid>,
}

impl Spool {
    /// Creates the spool of a journal whose segment `number` is open, and locks it.
    pub(crate) fn create(directory: &Path, number: u64) -> io::Result<Self> {
        let path = directory.join(format!("{PREFIX}{number:010}-{}", Uuid::now_v7().simple()));
        let file = File::options().read(true).write(true).create_new(true).mode(0o600).open(&path)?;
        file.try_lock().map_err(io::Error::from)?;
        Ok(Self { file, path, start: 0 })
    }

    /// Writes the first line.
    pub(crate) fn begin(&mut self, header: &SpoolHeader) -> io::Result<()> {
        let mut line = serde_json::to_vec(header)?;
        line.push(b'\n');
        self.file.write_all_at(&line, 0)?;
        self.start = line.len() as u64;
        Ok(())
    }

    pub(crate) fn file(&self) -> &File {
        &self.file
    }

    /// Writes lines at an offset, which counts from the end of the first line.
    pub(crate) fn write(&self, lines: &[u8], at: u64) -> io::Result<()> {
        self.file.write_all_at(lines, self.start + at)
    }

    /// Cuts the spool to this length, which counts from the end of the first line.
    pub(crate) fn cut(&self, length: u64) -> io::Result<()> {
        self.file.set_len(self.start + length)
    }

    /// Reads the lines from an offset on.
    pub(crate) fn read(&self, at: u64, length: u64) -> io::Result<Vec<u8>> {
        let mut lines = vec![0; usize::try_from(length).unwrap_or(usize::MAX)];
        self.file.read_exact_at(&mut lines, self.start + at)?;
        Ok(lines)
    }

    /// Removes the spool, of which nothing is needed any more.
    pub(crate) fn remove(&self) {
        remove(&self.path);
    }
}

/// The spools in the directory of a journal, each with the number of the segment that was open.
pub(crate) fn list(directory: &Path) -> io::Result<Vec<(u64, PathBuf)>> {
    let mut spools = Vec::new();
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        let name = path.file_name().and_then(|name| name.to_str()).and_then(|name| name.strip_prefix(PREFIX));
        let number = name.and_then(|name| name.split_once('-')?.0.parse().ok());
        spools.extend(number.map(|number| (number, path)));
    }
    spools.sort_unstable();
    Ok(spools)
}

pub(crate) fn remove(path: &Path) {
    if let Err(error) = fs::remove_file(path) {
        tracing::warn!(%error, path = %path.display(),
            "cannot remove the spool of an earlier process; the next start does");
    }
}
