//! The cursor key that is generated at the first start when none is configured, in a file beside the database.
//!
//! - The file appears complete or not at all, with mode 0600. When two processes generate a key at once, both use the
//!   one that was stored first.
//! - To move to configured keys later, list this one as `{id: 0, secret: {file: …}}` after the new one, until
//!   the cursor lifetime has passed.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use zeroize::Zeroizing;

use domain::secret::Secret;

/// Id of the generated key.
pub(super) const ID: u8 = 0;

/// Path of the key file of a database.
pub(super) fn path(database: &Path) -> PathBuf {
    database.with_extension("cursor-key")
}

/// Loads the key from the file; generates it first when there is none.
pub(super) fn load_or_generate(path: &Path) -> io::Result<Secret> {
    match load(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            generate(path)?;
            load(path)
        }
        loaded => loaded,
    }
}

fn load(path: &Path) -> io::Result<Secret> {
    let text = Zeroizing::new(fs::read_to_string(path)?);
    Ok(Secret::new(text.trim_end().to_owned()))
}

/// Generates a key file. The key is written to a temporary file, which gets the final name only when it is complete and
/// no other process has created the file meanwhile.
fn generate(path: &Path) -> io::Result<()> {
    let mut key = Zeroizing::new([0; 32]);
    getrandom::fill(key.as_mut())?;
    let text = Zeroizing::new(format!("{}\n", URL_SAFE_NO_PAD.encode(key.as_ref())));
    let aside = path.with_extension(format!("cursor-key.{}", std::process::id()));
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&aside)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    // A link fails when the name exists; a rename would replace the key of the other process.
    let linked = fs::hard_link(&aside, path);
    fs::remove_file(&aside)?;
    match linked {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => Err(error),
        _ => path.parent().map_or(Ok(()), |directory| File::open(directory)?.sync_all()),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn key_file_is_created_once_and_readable_by_its_owner_only() {
        let directory = tempfile::tempdir().unwrap();
        let path = path(&directory.path().join("queries.db"));
        let key = load_or_generate(&path).unwrap();
        assert_eq!(load_or_generate(&path).unwrap(), key);
        assert_eq!(key.expose().len(), 43);
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1, "nothing is left aside");
        let other = directory.path().join("other.cursor-key");
        assert_ne!(load_or_generate(&other).unwrap(), key);
    }
}
