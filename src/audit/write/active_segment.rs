//! The segment that is being written.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;

use super::pending::Batch;
use crate::audit::format::segment;
use crate::audit::settings::Settings;
use crate::clock::{self, Micros};

/// The segment that is being written.
///
/// A batch is written as a whole or not at all: after a failure the file is cut back to its last good byte before
/// anything else is written.
#[derive(Debug)]
pub(crate) struct ActiveSegment {
    /// `None` before the first segment of a journal.
    pub(crate) file: Option<File>,
    pub(crate) number: u64,
    /// Bytes that are written and good.
    pub(crate) length: u64,
    pub(crate) created: Micros,
    /// There are lines after the header; a segment without any is not closed.
    pub(crate) has_events: bool,
    /// There may be bytes after `length` that a failed write left behind.
    dirty: bool,
    /// Empty buffer for the lines that are appended next.
    pub(crate) spare: Vec<u8>,
}

impl ActiveSegment {
    /// The segment to continue; number 0 and no file when there is none yet.
    pub(crate) fn new(file: Option<File>, number: u64, length: u64, created: Micros, has_events: bool) -> Self {
        Self { file, number, length, created, has_events, dirty: false, spare: Vec::new() }
    }

    /// Appends a batch. One that begins with a header begins the next segment.
    pub(crate) fn write_batch(&mut self, settings: &Settings, batch: &Batch) -> io::Result<()> {
        if batch.header {
            return self.write_first_batch(settings, batch);
        }
        self.cut_back()?;
        let file = self.file.as_ref().ok_or(io::ErrorKind::NotFound)?;
        if let Err(error) = file.write_all_at(&batch.lines, self.length) {
            self.dirty = true;
            // Cut back at once, so that readers do not see withdrawn lines; if that fails, before the next write.
            self.cut_back().unwrap_or_else(|error| tracing::debug!(%error, "cannot cut back the audit segment yet"));
            return Err(error);
        }
        self.length += batch.lines.len() as u64;
        self.has_events = true;
        Ok(())
    }

    /// Writes the batch that begins the next segment. The present one is closed only when this has succeeded.
    fn write_first_batch(&mut self, settings: &Settings, batch: &Batch) -> io::Result<()> {
        self.cut_back()?;
        let number = self.number + 1;
        let file = segment::create(&settings.path, number)?;
        if let Err(error) = file.write_all_at(&batch.lines, 0) {
            // If the removal fails too, recovery ignores the file: it has no good line.
            let removed = std::fs::remove_file(segment::path(&settings.path, number));
            removed.unwrap_or_else(|error| tracing::debug!(%error, "cannot remove the new audit segment"));
            return Err(error);
        }
        let length = batch.lines.len() as u64;
        *self = Self::new(Some(file), number, length, clock::now(), batch.events > 1);
        Ok(())
    }

    /// Cuts the file back to its last good byte, when there may be more.
    fn cut_back(&mut self) -> io::Result<()> {
        if let (true, Some(file)) = (self.dirty, &self.file) {
            file.set_len(self.length)?;
            self.dirty = false;
        }
        Ok(())
    }

    /// Syncs the content of the file to disk.
    pub(crate) fn sync(&self) -> io::Result<()> {
        self.file.as_ref().map_or(Ok(()), File::sync_data)
    }

    /// Tests for free space: writes a page after the end and cuts it off again.
    pub(crate) fn probe_space(&mut self) -> io::Result<()> {
        self.cut_back()?;
        let Some(file) = &self.file else { return Ok(()) };
        self.dirty = true;
        file.write_all_at(&[b' '; 4096], self.length)?;
        self.cut_back()
    }

    /// True when this segment is to be closed once `more` further bytes are in it.
    pub(crate) fn is_rotation_due(&self, settings: &Settings, more: u64) -> bool {
        let old = || clock::now() >= self.created.after(settings.segment_age);
        (self.has_events || more > 0) && (self.length + more >= settings.segment_size || old())
    }
}
