//! Output that exists once: secrets, which no later command can print again.
//!
//! - Standard output is looked at before the change that makes a secret. When it is closed, or a pipe that nothing
//!   reads, nothing is changed.
//! - A secret that could not be written all the same, as on a full disk, is an error that says what was made, and how
//!   to replace or revoke it. A broken pipe is no success then, as it is for lists.

use std::io;
use std::os::unix::fs::MetadataExt as _;

use anyhow::anyhow;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{OFlags, fcntl_getfl, fstat};

use super::{CliError, ExitStatus};

/// Checks that standard output can take a secret.
///
/// # Errors
/// It cannot. Nothing was changed.
pub(super) fn check() -> Result<(), CliError> {
    let flaw = if is_closed() {
        "is closed, or is /dev/null"
    } else if has_no_reader() {
        "is a pipe that nothing reads"
    } else {
        return Ok(());
    };
    let error = anyhow!(
        "standard output {flaw}, so a new secret would be lost; nothing was changed: send it to a file, or to a \
         program that reads it"
    );
    Err(CliError::new(ExitStatus::Failed, error))
}

/// Writes what has a secret when there is a way out, which says what to do when the secret is lost.
pub(super) fn write(way_out: Option<String>, write: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
    let Some(way_out) = way_out else { return write() };
    write().map_err(|error| io::Error::other(format!("standard output cannot be written ({error}): {way_out}")))
}

/// Returns whether the descriptor was closed when the process began: the runtime of the language has opened /dev/null
/// in its place then, for reading and writing. A shell's `> /dev/null`, which is on purpose, is for writing only.
fn is_closed() -> bool {
    let Ok(own) = fstat(io::stdout()) else { return true };
    // As in a root without devices.
    let Ok(null) = std::fs::metadata("/dev/null") else { return false };
    let is_null = own.st_rdev == null.rdev() && own.st_mode & 0o170_000 == 0o020_000;
    is_null && fcntl_getfl(io::stdout()).is_ok_and(|flags| flags.contains(OFlags::RDWR))
}

/// Returns whether the other end of a pipe, a socket or a terminal is gone. A full pipe is not.
fn has_no_reader() -> bool {
    let stdout = io::stdout();
    let mut fds = [PollFd::new(&stdout, PollFlags::OUT)];
    let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
    let polled = poll(&mut fds, Some(&at_once)).is_ok();
    polled && fds[0].revents().intersects(PollFlags::ERR | PollFlags::HUP | PollFlags::NVAL)
}
