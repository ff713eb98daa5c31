//! Memory of a state: the file beside the journal, in which a gateway keeps the identity of the state that it serves.
//!
//! - Written at most once a second, only after it has changed, and replaced whole: a crash leaves the one before, which
//!   refuses less.
//! - A file that cannot be read counts as one that is not there, with a line in the log.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::StateId;

/// Name of the file in the journal's directory.
pub const MEMORY_FILE: &str = "state-identity";

/// Memory of the state that a gateway serves.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Memory {
    /// Identity of the state.
    pub id: StateId,
    /// Number of its last change.
    pub changes: u64,
    /// Number of the last change that no failover may lose any more.
    pub settled: u64,
}

impl Memory {
    /// Reads the file; none when there is none, or it cannot be read.
    pub(super) fn load(path: &Path) -> Option<Self> {
        let text = match fs::read(path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return None,
            Err(error) => {
                tracing::warn!(%error, path = %path.display(), "cannot read which state this gateway has served");
                return None;
            }
        };
        let parsed = serde_json::from_slice(&text);
        parsed
            .inspect_err(|error| {
                tracing::warn!(%error, path = %path.display(), "cannot read which state this gateway has served");
            })
            .ok()
    }

    /// Replaces the file.
    pub(super) fn save(&self, path: &Path) -> io::Result<()> {
        let text = serde_json::to_vec(self).expect("a struct of texts and numbers");
        let mut partial = path.as_os_str().to_owned();
        partial.push(".new");
        let partial = PathBuf::from(partial);
        let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&partial)?;
        file.write_all(&text)?;
        file.sync_data()?;
        fs::rename(&partial, path)?;
        path.parent().map_or(Ok(()), |directory| File::open(directory)?.sync_all())
    }
}
