//! The name of a journal: a UUID in a file beside it.
//!
//! A gateway that comes back with an empty disk has another journal under the same name of the gateway: its
//! positions begin anew.

use std::fs;
use std::io;
use std::path::Path;

use uuid::Uuid;

use super::ship_files::{directory, write_atomically};

/// Reads the name of a journal, and makes one when there is none.
pub(super) fn read_or_create(journal: &Path) -> io::Result<Uuid> {
    let directory = directory(journal);
    fs::create_dir_all(&directory)?;
    let path = directory.join("journal");
    match fs::read_to_string(&path) {
        Ok(text) => match text.trim().parse() {
            Ok(id) => return Ok(id),
            // Without its name, the journal is shipped again from its beginning, which changes nothing.
            Err(_) => {
                tracing::warn!(path = %path.display(), "the name of the audit journal is damaged; making another")
            }
        },
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    let id = Uuid::now_v7();
    write_atomically(&path, format!("{id}\n").as_bytes())?;
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
        fs::write(directory(journal.path()).join("journal"), "damaged").unwrap();
        assert_ne!(read_or_create(journal.path()).unwrap(), id);
    }
}
