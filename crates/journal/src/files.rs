//! Files of a journal and beside it: created for their owner alone, replaced as a whole, and read where they are there
//! and undamaged.

use std::fs::{self, File};
use std::io;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

/// Creates a file of mode 0600, and empties one that is there. It is open for reading, too.
pub(crate) fn create(path: &Path) -> io::Result<File> {
    File::options().read(true).write(true).create(true).truncate(true).mode(0o600).open(path)
}

/// Replaces a file as a whole; it is on the disk when this returns.
pub(crate) fn replace(path: &Path, content: &[u8]) -> io::Result<()> {
    write_and_rename(path, content, File::sync_all)?;
    path.parent().map_or(Ok(()), sync_directory)
}

/// Replaces a file as a whole. It survives the end of the process, and perhaps not that of the machine.
pub(crate) fn replace_unsynced(path: &Path, content: &[u8]) -> io::Result<()> {
    write_and_rename(path, content, |_| Ok(()))
}

fn write_and_rename(path: &Path, content: &[u8], sync: impl FnOnce(&File) -> io::Result<()>) -> io::Result<()> {
    let mut temporary = path.as_os_str().to_owned();
    temporary.push(".tmp");
    let temporary = PathBuf::from(temporary);
    let written = create(&temporary).and_then(|mut file| file.write_all(content).and_then(|()| sync(&file)));
    written.and_then(|()| fs::rename(&temporary, path)).inspect_err(|_| {
        let removed = fs::remove_file(&temporary);
        removed
            .unwrap_or_else(|error| tracing::debug!(%error, "cannot remove an unfinished file of the audit journal"));
    })
}

/// Brings the names in a directory to disk, such as that of a new file.
pub(crate) fn sync_directory(directory: &Path) -> io::Result<()> {
    File::open(directory)?.sync_all()
}

/// The result of opening or reading a file; `None` when there is none.
pub(crate) fn if_found<T>(result: io::Result<T>) -> io::Result<Option<T>> {
    none_if(io::ErrorKind::NotFound, result)
}

/// The result of reading a file; `None` when it is damaged ([`io::ErrorKind::InvalidData`]).
pub(crate) fn if_intact<T>(result: io::Result<T>) -> io::Result<Option<T>> {
    none_if(io::ErrorKind::InvalidData, result)
}

fn none_if<T>(kind: io::ErrorKind, result: io::Result<T>) -> io::Result<Option<T>> {
    match result {
        Err(error) if error.kind() == kind => Ok(None),
        result => result.map(Some),
    }
}

/// Reads from an offset on by `read_at`, until `out` is full or nothing comes any more. Returns the number of bytes.
pub(crate) fn fill(
    out: &mut [u8],
    from: u64,
    mut read_at: impl FnMut(&mut [u8], u64) -> io::Result<usize>,
) -> io::Result<usize> {
    let mut filled = 0;
    while filled < out.len() {
        match read_at(&mut out[filled..], from + filled as u64) {
            Ok(0) => break,
            Ok(read) => filled += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}
