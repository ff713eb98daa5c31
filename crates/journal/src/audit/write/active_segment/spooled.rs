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

/// Sign that another process may have written to the journal since it was handed over.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TouchedJournal {
    #[error("it was not handed over")]
    NotHandedOver,
    #[error("segment {0} was begun")]
    NextSegment(u64),
    #[error("segment {segment} has more lines after byte {from}")]
    Continued { segment: u64, from: u64 },
    #[error("segment {segment} cannot be read: {source}")]
    Unreadable { segment: u64, source: io::Error },
}

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
        debug_assert!(
            self.spool.is_none() && self.next.is_none(),
            "the journal is handed over once, and begins no segment then"
        );
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

    /// Checks that nothing was appended to the file while lines went to the spool.
    pub(crate) fn check_untouched(&self, settings: &Settings) -> Result<(), TouchedJournal> {
        let (Some((_, from)), Some(file)) = (&self.spool, &self.file) else {
            return Err(TouchedJournal::NotHandedOver);
        };
        let segment = self.number;
        let next = segment + 1;
        let unreadable = |segment| move |source| TouchedJournal::Unreadable { segment, source };
        if segment::path(&settings.path, next).try_exists().map_err(unreadable(next))? {
            return Err(TouchedJournal::NextSegment(next));
        }
        let mut byte = [0];
        file.read_at(&mut byte, *from).map_err(unreadable(segment))?;
        // Space that is allocated behind the end reads as nothing, or as zeros.
        if byte == [0] { Ok(()) } else { Err(TouchedJournal::Continued { segment, from: *from }) }
    }

    /// The file that lines go to.
    pub(crate) fn current_file(&self) -> Option<&File> {
        self.spool.as_ref().map(|(spool, _)| spool.file()).or(self.file.as_ref())
    }
}
