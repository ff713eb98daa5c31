//! Writing to a spool in place of the segment, while another process has the journal.
//!
//! Lengths go on counting as if the lines went to the segment: taken back, they are where they would have been.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;

use super::ActiveSegment;
use crate::audit::format::segment;
use crate::audit::settings::{Durability, Settings};
use crate::audit::write::allocation::Purpose;
use crate::audit::write::spool::Spool;

impl ActiveSegment {
    pub(super) fn write_at_end(&self, lines: &[u8]) -> io::Result<()> {
        match (&self.spool, &self.file) {
            (Some((spool, from)), _) => spool.write(lines, self.length - from),
            (None, Some(file)) => file.write_all_at(lines, self.length),
            (None, None) => Err(io::ErrorKind::NotFound.into()),
        }
    }

    /// Sends what is written from now on to a spool.
    pub(crate) fn divert(&mut self, spool: Spool) {
        self.spool = Some((spool, self.length));
    }

    /// Appends what is in the spool to the file, and removes the spool.
    pub(crate) fn take_back(&mut self, settings: &Settings) -> io::Result<()> {
        let (Some((spool, from)), Some(file)) = (&self.spool, &self.file) else { return Ok(()) };
        let bytes = self.length - from;
        if self.allocation.room(*from, Purpose::Use) < bytes {
            self.allocation.extend(file, *from, bytes)?;
        }
        let lines = spool.read(0, bytes)?;
        if let Err(error) = file.write_all_at(&lines, *from) {
            file.set_len(*from)?;
            return Err(error);
        }
        if settings.durability == Durability::Synced {
            file.sync_data()?;
        }
        spool.remove();
        self.spool = None;
        Ok(())
    }

    /// Returns whether nothing was appended to the file while lines went to the spool.
    pub(crate) fn is_untouched(&self, settings: &Settings) -> bool {
        let (Some((_, from)), Some(file)) = (&self.spool, &self.file) else { return false };
        let mut next = [0];
        // Space that is allocated behind the end reads as nothing, or as zeros.
        let is_last = !segment::path(&settings.path, self.number + 1).exists();
        is_last && file.read_at(&mut next, *from).is_ok() && next == [0]
    }

    /// The file that lines go to.
    pub(crate) fn current_file(&self) -> Option<&File> {
        self.spool.as_ref().map(|(spool, _)| spool.file()).or(self.file.as_ref())
    }
}
