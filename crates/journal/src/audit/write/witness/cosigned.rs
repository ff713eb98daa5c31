//! The newest checkpoint that witnesses have cosigned, and its file.

use parking_lot::Mutex;

use crate::audit::tree::published;
use crate::audit::write::writer::JournalWriter;
use tlog::checkpoint::SignedCheckpoint;
use tlog::note::Note;

/// The newest checkpoint that a witness has cosigned, with the cosignatures of all that have.
#[derive(Debug, Default)]
pub(super) struct Cosigned {
    newest: Mutex<Option<SignedCheckpoint>>,
}

impl Cosigned {
    /// Adds a verified cosignature to the newest cosigned checkpoint, and writes that to its file.
    pub(super) fn add(
        &self,
        writer: &JournalWriter,
        signed: &SignedCheckpoint,
        cosignatures: &Note,
    ) -> std::io::Result<()> {
        let mut newest = self.newest.lock();
        let size = signed.checkpoint.size;
        // One that is overtaken already adds nothing.
        if newest.as_ref().is_some_and(|newest| newest.checkpoint.size > size) {
            return Ok(());
        }
        let mut cosigned =
            newest.take().filter(|newest| newest.checkpoint.size == size).unwrap_or_else(|| signed.clone());
        cosigned.note.signatures.extend(cosignatures.signatures.iter().cloned());
        let text = cosigned.note.to_string();
        *newest = Some(cosigned);
        published::write(&writer.settings.path, published::COSIGNED, &text)
    }
}
