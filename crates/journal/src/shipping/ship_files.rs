//! Files beside the journal, for shipping: each is replaced as a whole.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

/// Directory beside the segments, for the positions of sinks.
pub(super) fn directory(journal: &Path) -> PathBuf {
    journal.join("ship")
}

/// Replaces a file as a whole; it is on the disk when this returns.
pub(super) fn write_atomically(path: &Path, content: &[u8]) -> io::Result<()> {
    let temporary = path.with_extension("tmp");
    write_file(&temporary, content)?.sync_all()?;
    fs::rename(&temporary, path)?;
    path.parent().map_or(Ok(()), |directory| File::open(directory)?.sync_all())
}

/// Writes a file of mode 0600.
pub(super) fn write_file(path: &Path, content: &[u8]) -> io::Result<File> {
    let mut options = OpenOptions::new();
    let mut file = options.write(true).create(true).truncate(true).mode(0o600).open(path)?;
    file.write_all(content)?;
    Ok(file)
}
