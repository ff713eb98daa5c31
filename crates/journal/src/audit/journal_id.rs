//! The name of a journal: a UUID in a file beside it.
//!
//! A gateway that comes back with an empty disk has another journal under the same name of the gateway: its
//! positions begin anew.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use uuid::Uuid;

use crate::files;

/// The directory beside the segments for the files of shipping: the name of the journal, positions of sinks, and what
/// they refuse.
pub(crate) fn ship_directory(journal: &Path) -> PathBuf {
    journal.join("ship")
}

fn path(journal: &Path) -> PathBuf {
    ship_directory(journal).join("journal")
}

/// Reads the name of a journal; `None` when it was never shipped, or the name is damaged.
pub(crate) fn read(journal: &Path) -> io::Result<Option<Uuid>> {
    Ok(files::if_found(fs::read_to_string(path(journal)))?.and_then(|text| text.trim().parse().ok()))
}

/// Reads the name of a journal, and makes one when there is none.
pub(crate) fn read_or_create(journal: &Path) -> io::Result<Uuid> {
    fs::create_dir_all(ship_directory(journal))?;
    if let Some(id) = read(journal)? {
        return Ok(id);
    }
    let path = path(journal);
    if path.exists() {
        // Without its name, the journal is shipped again from its beginning, which changes nothing.
        tracing::warn!(path = %path.display(), "the name of the audit journal is damaged; making another");
    }
    let id = Uuid::now_v7();
    files::replace(&path, format!("{id}\n").as_bytes())?;
    Ok(id)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn journal_keeps_its_name() {
        let journal = tempfile::tempdir().unwrap();
        let id = read_or_create(journal.path()).unwrap();
        assert_eq!(read_or_create(journal.path()).unwrap(), id);
        fs::write(path(journal.path()), "damaged").unwrap();
        assert_ne!(read_or_create(journal.path()).unwrap(), id);
    }
}
