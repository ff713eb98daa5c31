//! Directory of a demo: its state, queries, keys and configuration.

use std::fs::{self, File, TryLockError};
use std::path::PathBuf;

use anyhow::{Context as _, bail};
use uuid::Uuid;

/// Locked while a demo runs in the directory.
const LOCK_FILE: &str = "demo.lock";

/// Directory of a demo, locked against other demos as long as this lives.
pub(super) struct Directory {
    pub(super) path: PathBuf,
    _lock: File,
}

impl Directory {
    /// Creates the directory if it is missing, and locks it. Without `dir`, it is a new one for temporary files.
    pub(super) fn take(dir: Option<PathBuf>) -> anyhow::Result<Self> {
        use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
        let dir = dir.unwrap_or_else(|| {
            let name = format!("keygate-demo-{}", &Uuid::new_v4().simple().to_string()[..8]);
            std::env::temp_dir().join(name)
        });
        let created = fs::DirBuilder::new().recursive(true).mode(0o700).create(&dir);
        created.with_context(|| format!("cannot create the directory {}", dir.display()))?;
        let path = fs::canonicalize(&dir).with_context(|| format!("cannot use the directory {}", dir.display()))?;
        let file = path.join(LOCK_FILE);
        let lock = File::options().write(true).create(true).truncate(false).mode(0o600).open(&file);
        let lock = lock.with_context(|| format!("cannot open {}", file.display()))?;
        match lock.try_lock() {
            Ok(()) => Ok(Self { path, _lock: lock }),
            Err(TryLockError::WouldBlock) => bail!("another demo is running in {}", path.display()),
            Err(TryLockError::Error(e)) => Err(e).with_context(|| format!("cannot lock {}", file.display())),
        }
    }
}
