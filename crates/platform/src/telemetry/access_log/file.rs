//! Files of the access log.
//!
//! - A file is opened for appending, never followed through a symbolic link, and is a regular file. A new one has the
//!   mode 0640: its group may read it.
//! - A write that stops within a line, as on a full disk, is cut back to the end of the line before.

use std::fmt;
use std::fs::{File, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;

use crate::metrics::LineMetrics;
use crate::outbound::delivery::Batch;
use crate::telemetry::lines::{end_of_last_line, note_written, write_some};

/// Mode of a new file.
const MODE: u32 = 0o640;

/// A file with a path.
#[derive(Debug)]
pub(super) struct LogFile {
    path: PathBuf,
    /// None when it could not be created for want of space.
    file: Option<File>,
}

impl LogFile {
    /// Opens or creates the file.
    ///
    /// # Errors
    /// Other than that there is no space.
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        match open(path) {
            Ok(file) => Ok(Self { path: path.to_owned(), file: Some(file) }),
            Err(error) if is_out_of_space(&error) => Ok(Self { path: path.to_owned(), file: None }),
            Err(error) => Err(error),
        }
    }

    pub(super) fn reopen(&mut self) -> io::Result<()> {
        self.file = Some(open(&self.path)?);
        Ok(())
    }

    pub(super) fn write(&mut self, batch: &mut Batch<u8>, metrics: &LineMetrics) -> io::Result<()> {
        let file = match &mut self.file {
            Some(file) => file,
            none => none.insert(open(&self.path)?),
        };
        let before = file.metadata()?.len();
        let (written, result) = write_some(file, batch.rest());
        let whole = end_of_last_line(&batch.rest()[..written]);
        if written > whole {
            cut(file, before + written as u64, before + whole as u64)?;
        }
        note_written(batch, whole, metrics);
        result
    }
}

impl fmt::Display for LogFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.path.display().fmt(f)
    }
}

fn open(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    // Without O_NONBLOCK, opening a FIFO would wait for its reader.
    let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC).bits();
    options.append(true).custom_flags(i32::try_from(flags).expect("flags of open are small"));
    let file = match options.clone().create_new(true).mode(0o600).open(path) {
        // Set apart from the creation, because the umask of the process would take the group's right away.
        Ok(file) => {
            file.set_permissions(Permissions::from_mode(MODE))?;
            file
        }
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => options.open(path)?,
        Err(error) => return Err(error),
    };
    if !file.metadata()?.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is not a regular file"));
    }
    Ok(file)
}

fn is_out_of_space(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

/// Cuts the beginning of a line off the end of a file, unless another process has appended to it meanwhile.
fn cut(file: &File, from: u64, to: u64) -> io::Result<()> {
    if file.metadata()?.len() == from { file.set_len(to) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::Metrics;

    #[test]
    fn new_file_has_its_mode_and_links_and_other_files_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        LogFile::open(&path("new")).unwrap();
        assert_eq!(path("new").metadata().unwrap().permissions().mode() & 0o777, MODE);
        std::fs::write(path("old"), "line\n").unwrap();
        std::fs::set_permissions(path("old"), Permissions::from_mode(0o600)).unwrap();
        LogFile::open(&path("old")).unwrap();
        assert_eq!(
            path("old").metadata().unwrap().permissions().mode() & 0o777,
            0o600,
            "an existing file keeps its mode"
        );
        std::os::unix::fs::symlink(path("old"), path("link")).unwrap();
        assert!(LogFile::open(&path("link")).is_err());
        assert!(LogFile::open(dir.path()).is_err());
        assert!(std::process::Command::new("mkfifo").arg(path("pipe")).status().unwrap().success());
        assert!(LogFile::open(&path("pipe")).is_err());
        assert!(LogFile::open(&path("missing/new")).is_err());
    }

    #[test]
    fn full_device_keeps_all_lines() {
        let file = File::options().append(true).open("/dev/full").unwrap();
        let mut log = LogFile { path: "/dev/full".into(), file: Some(file) };
        let metrics = Metrics::new().access_log;
        let mut batch = Batch::from(b"a\nb\n".to_vec());
        assert!(log.write(&mut batch, &metrics).is_err());
        assert_eq!((batch.rest(), metrics.written.get()), (&b"a\nb\n"[..], 0));
    }

    #[test]
    fn beginning_of_a_line_is_cut_off_unless_the_file_has_grown() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        std::fs::write(&path, "whole\nbroken").unwrap();
        let file = File::options().append(true).open(&path).unwrap();
        cut(&file, 13, 6).unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"whole\nbroken", "12 bytes, and not 13");
        cut(&file, 12, 6).unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"whole\n");
    }
}
