//! Directory of a first configuration: checked before it is written, and never written over.

use std::fs::{self, DirBuilder, File};
use std::io::Write as _;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::Path;

use anyhow::{Context as _, bail};

/// Default directory. `keygate/keygate.yaml` is a default of `--config`, so the next commands find it.
pub(super) const DEFAULT: &str = "keygate";
pub(super) const CONFIG_FILE: &str = "keygate.yaml";
pub(super) const STATE_FILE: &str = "state.db";
pub(super) const AUDIT: &str = "audit";
pub(super) const SOCKET: &str = "admin.sock";

/// Checks that the directory is missing, or has nothing in it that a gateway there would use. Other files may be there.
///
/// # Errors
/// The text says what is there, and what to do.
pub(super) fn check_free(dir: &Path) -> anyhow::Result<()> {
    if fs::metadata(dir).is_ok_and(|found| !found.is_dir()) {
        bail!("{} is not a directory; choose another name with --dir", dir.display());
    }
    let places = [CONFIG_FILE, STATE_FILE, AUDIT, SOCKET].map(|name| dir.join(name));
    match places.iter().find(|place| fs::symlink_metadata(place).is_ok()) {
        Some(place) => bail!("{} exists and is not overwritten; choose another directory with --dir", place.display()),
        None => Ok(()),
    }
}

/// Writes the configuration into the directory, which is created for this user alone when it is missing.
///
/// # Errors
/// The directory or the file cannot be created, or the file exists by now.
pub(super) fn write(dir: &Path, text: &str) -> anyhow::Result<()> {
    let created = DirBuilder::new().recursive(true).mode(0o700).create(dir);
    created.with_context(|| format!("cannot create the directory {}", dir.display()))?;
    let path = dir.join(CONFIG_FILE);
    let written = File::create_new(&path).and_then(|mut file| file.write_all(text.as_bytes()));
    written.with_context(|| format!("cannot write {}", path.display()))
}
