//! Marker of a gateway that runs: a file beside its journal, which is removed when it stops.
//!
//! - A start that finds one says in the log that the gateway before it ended without stopping. So no end is silent:
//!   neither a kill nor a fault can leave a line themselves.
//! - It belongs to the process that has the journal. In a hand-over, the new process replaces it when it serves, and
//!   the old one leaves it there.

use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use domain::clock::{self, Micros};

/// Name of the file in the journal's directory.
const NAME: &str = "running";

/// The marker of this process. Dropping it removes the file, if this process has written it.
#[derive(Debug)]
pub(super) struct RunMarker {
    path: PathBuf,
    is_set: bool,
}

/// Content of the file.
#[derive(Debug, Serialize, Deserialize)]
struct Content {
    process: u32,
    version: String,
    #[serde(with = "clock::rfc3339")]
    started: Micros,
}

impl RunMarker {
    /// Logs that the gateway before has not stopped, if it has left its marker, and writes that of this process. Call
    /// under the lock of the journal, which is in the directory. One that takes over leaves the old process its marker,
    /// until [`RunMarker::set`].
    pub(super) fn begin(directory: &Path, takes_over: bool) -> Self {
        let mut marker = Self { path: directory.join(NAME), is_set: false };
        if !takes_over {
            marker.report_left();
            marker.set();
        }
        marker
    }

    fn report_left(&self) {
        let text = match fs::read(&self.path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return,
            Err(error) => {
                tracing::warn!(%error, path = %self.path.display(),
                    "cannot find out whether the last gateway has stopped");
                return;
            }
        };
        // It may be torn, as the machine may have gone down.
        let content = serde_json::from_slice::<Content>(&text).ok();
        let process = content.as_ref().map(|content| content.process);
        let version = content.as_ref().map(|content| &*content.version);
        let started = content.as_ref().map(|content| content.started.to_string());
        tracing::error!(
            process,
            version,
            started,
            "the last gateway ended without stopping: it was killed, or crashed, or the machine went down; the end of \
             its log and the kernel's log (out of memory, segfault) may say why"
        );
    }

    /// Writes the marker of this process, in place of any other.
    pub(super) fn set(&mut self) {
        let version = env!("CARGO_PKG_VERSION").to_owned();
        let content = Content { process: std::process::id(), version, started: clock::now() };
        self.is_set = true;
        if let Err(error) = write(&self.path, &content) {
            let path = self.path.display();
            tracing::warn!(%error, %path,
                "cannot note that the gateway runs: the next start will not tell a crash from a stop");
        }
    }

    /// Leaves the file to the process that has the journal now.
    pub(super) fn leave(&mut self) {
        self.is_set = false;
    }
}

impl Drop for RunMarker {
    fn drop(&mut self) {
        if self.is_set
            && let Err(error) = fs::remove_file(&self.path)
        {
            tracing::debug!(%error, path = %self.path.display(), "cannot remove the marker of a gateway that runs");
        }
    }
}

fn write(path: &Path, content: &Content) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path)?;
    file.write_all(&serde_json::to_vec(content)?)
}
