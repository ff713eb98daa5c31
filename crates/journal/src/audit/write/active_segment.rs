//! The segment that is being written.

mod spooled;

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::time::{Duration, Instant};

use super::allocation::{Allocation, Purpose};
use super::pending::{Batch, SpareBuffers};
use super::spool::Spool;
use crate::audit::format::segment::{self, Point};
use crate::audit::settings::Settings;
use crate::files;
use domain::clock::{self, Micros};

/// Pause after a next segment could not be created. The present one is continued until then.
const ROTATION_RETRY: Duration = Duration::from_secs(1);

/// The segment that is being written.
///
/// - A batch is written as a whole or not at all: after a failure the file is cut back to its last good byte before
///   anything else is written.
/// - The next segment exists, with space of its own, before the present one is closed: a full disk closes none.
///
/// It belongs to the thread that holds its lock. Dropped, the files stay as they are: what is behind the end is cut off
/// by the next start, and an empty next segment is found by it.
#[derive(Debug, Default)]
pub(crate) struct ActiveSegment {
    /// `None` before the first segment of a journal.
    pub(crate) file: Option<File>,
    pub(crate) number: u64,
    /// Bytes that are written and good.
    pub(crate) length: u64,
    /// Bytes of the header, which do not count towards the segment's size.
    header_length: u64,
    pub(crate) created: Micros,
    /// There are lines after the header; a segment without any is not closed.
    pub(crate) has_events: bool,
    /// There may be bytes after `length` that a failed write left behind.
    dirty: bool,
    /// Offset of the batch whose sync has failed. Its lines may not be on disk, so those who follow the journal stop
    /// there; the next start finds what is left of them.
    unsynced_from: Option<u64>,
    /// Empty buffers for the lines that are appended next.
    pub(crate) spare: SpareBuffers,
    allocation: Allocation,
    /// The file of the next segment, empty, while its header waits to be written. Taken by the batch that begins with
    /// the header, or removed when the journal is closed.
    next: Option<(File, Allocation)>,
    /// The next segment could not be created; not tried again before this time.
    rotation_retry: Option<Instant>,
    /// This segment takes no more lines.
    is_retired: bool,
    /// Spool that takes the lines while another process has the journal, as the mode says, and the length of the
    /// segment when that began. Removed when the journal is taken back, and else by the successor.
    spool: Option<(Spool, u64)>,
}

/// A segment to be continued: the last one of a journal, as recovery has found it, or one that was just begun.
#[derive(Debug, Default)]
pub(crate) struct RecoveredSegment {
    /// Open for writing; `None` in a new journal.
    pub(crate) file: Option<File>,
    pub(crate) number: u64,
    /// Bytes up to the end of the last good line.
    pub(crate) length: u64,
    /// Bytes of the header.
    pub(crate) header_length: u64,
    pub(crate) created: Micros,
    /// There are lines after the header.
    pub(crate) has_events: bool,
}

impl RecoveredSegment {
    /// The end of the journal.
    pub(crate) fn end(&self) -> Point {
        Point { segment: self.number, offset: self.length }
    }
}

impl ActiveSegment {
    /// The segment to continue; number 0 and no file when there is none yet.
    pub(crate) fn new(recovered: RecoveredSegment) -> Self {
        let mut allocation = Allocation::default();
        if let Some(file) = &recovered.file
            && allocation.extend(file, recovered.length, 0).is_err()
        {
            allocation.adopt(file);
        }
        Self::with_allocation(recovered, allocation)
    }

    fn with_allocation(found: RecoveredSegment, allocation: Allocation) -> Self {
        let RecoveredSegment { file, number, length, header_length, created, has_events } = found;
        Self { file, number, length, header_length, created, has_events, allocation, ..Self::default() }
    }

    /// True when there was no space at the last attempt to allocate some.
    pub(crate) fn is_out_of_space(&self) -> bool {
        self.allocation.has_failed()
    }

    /// Notes that the batch that was written last could not be synced.
    pub(crate) fn withdraw_unsynced(&mut self, batch: &Batch) {
        self.unsynced_from = Some(self.length - batch.lines.len() as u64);
    }

    /// The end of the lines that stay, whatever happens to the process.
    pub(crate) fn lasting_end(&self) -> Point {
        Point { segment: self.number, offset: self.unsynced_from.unwrap_or(self.length) }
    }

    /// True when the next segment was prepared.
    pub(crate) fn has_next(&self) -> bool {
        self.next.is_some()
    }

    /// Bytes for which there is space: in this segment, or, for a batch that begins with a header, in the next one.
    pub(crate) fn room(&self, header: bool, purpose: Purpose) -> u64 {
        match (&self.next, header) {
            _ if self.spool.is_some() => u64::MAX,
            (Some((_, allocation)), true) => allocation.room(0, purpose),
            (None, true) => 0,
            (_, false) => self.allocation.room(self.length, purpose),
        }
    }

    /// Allocates space for `bytes` of lines, so that [`ActiveSegment::room`] has them.
    pub(crate) fn reserve(&mut self, settings: &Settings, header: bool, bytes: u64) -> io::Result<()> {
        if header {
            self.prepare_next(settings)?;
            return self.next.as_mut().map_or(Ok(()), |(file, allocation)| allocation.extend(file, 0, bytes));
        }
        self.cut_back()?;
        let file = self.file.as_ref().ok_or(io::ErrorKind::NotFound)?;
        self.allocation.extend(file, self.length, bytes)
    }

    /// Creates the next segment and its reserve, unless it is there already.
    pub(crate) fn prepare_next(&mut self, settings: &Settings) -> io::Result<()> {
        if self.next.is_some() {
            return Ok(());
        }
        let number = self.number + 1;
        let created = files::create(&segment::path(&settings.path, number)).and_then(|file| {
            let mut allocation = Allocation::default();
            let allocated = allocation.extend(&file, 0, 0);
            // A retired segment leaves hardly more than its reserve, and no other one takes changes by management.
            let allocated =
                if self.is_retired { allocated.or_else(|_| allocation.extend_half(&file)) } else { allocated };
            allocated.inspect_err(|_| remove(settings, number))?;
            Ok((file, allocation))
        });
        if let Err(error) = &created
            && self.rotation_retry.replace(Instant::now() + ROTATION_RETRY).is_none()
        {
            tracing::warn!(%error, segment = number,
                "cannot create the next audit segment; continuing the present one");
        }
        self.next = Some(created?);
        Ok(())
    }

    /// Removes the next segment if it was prepared and not begun: in a closed journal, an empty last segment would look
    /// like one that has lost its lines.
    pub(crate) fn discard_next(&mut self, settings: &Settings) {
        if self.next.take().is_some() {
            remove(settings, self.number + 1);
        }
    }

    /// Appends a batch. One that begins with a header begins the next segment.
    pub(crate) fn write_batch(&mut self, settings: &Settings, batch: &Batch) -> io::Result<()> {
        if batch.header {
            return self.write_first_batch(settings, batch);
        }
        self.cut_back()?;
        if let Err(error) = self.write_at_end(&batch.lines) {
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
        self.prepare_next(settings)?;
        let number = self.number + 1;
        let (file, allocation) = self.next.take().expect("the next segment was prepared");
        if let Err(error) = file.write_all_at(&batch.lines, 0) {
            // If the removal fails too, recovery ignores the file: it has no good line.
            remove(settings, number);
            return Err(error);
        }
        self.release_reserve();
        let length = batch.lines.len() as u64;
        let header_length = batch.lines.iter().position(|byte| *byte == b'\n').map_or(0, |newline| newline as u64 + 1);
        let has_events = batch.events > 1;
        let begun =
            RecoveredSegment { file: Some(file), number, length, header_length, created: clock::now(), has_events };
        *self = Self { spare: std::mem::take(&mut self.spare), ..Self::with_allocation(begun, allocation) };
        Ok(())
    }

    /// Notes that the header of the next segment is the next line, and gives back the space behind the end of this one.
    pub(crate) fn retire(&mut self) {
        self.release_reserve();
        self.allocation.cut(self.length);
        self.is_retired = true;
    }

    /// Gives back the space behind the end of a segment that is closed.
    fn release_reserve(&self) {
        if let Some(Err(error)) = self.file.as_ref().map(|file| file.set_len(self.length)) {
            tracing::debug!(%error, segment = self.number, "cannot free the space behind a closed audit segment");
        }
    }

    /// Cuts the file back to its last good byte, when there may be more.
    fn cut_back(&mut self) -> io::Result<()> {
        if !self.dirty {
            return Ok(());
        }
        if let Some((spool, from)) = &self.spool {
            spool.cut(self.length - from)?;
        } else if let Some(file) = &self.file {
            file.set_len(self.length)?;
            self.allocation.cut(self.length);
        }
        self.dirty = false;
        Ok(())
    }

    /// Syncs the content of the file to disk.
    pub(crate) fn sync(&self) -> io::Result<()> {
        self.current_file().map_or(Ok(()), File::sync_data)
    }

    /// Tests for free space: allocates some, or, when writing itself had failed, writes a page after the end
    /// and cuts it off again.
    pub(crate) fn probe_space(&mut self, settings: &Settings) -> io::Result<()> {
        self.cut_back()?;
        if self.spool.is_some() {
            return Ok(());
        }
        let Some(file) = &self.file else { return self.prepare_next(settings) };
        if !self.allocation.has_failed() {
            self.dirty = true;
            file.write_all_at(&[b' '; 4096], self.length)?;
            self.cut_back()?;
        }
        self.reserve(settings, false, 4096)
    }

    /// True when this segment is to be closed at the time `now`, once `more` further bytes are in it.
    pub(crate) fn is_rotation_due(&self, settings: &Settings, more: u64, now: Micros) -> bool {
        self.spool.is_none()
            && (self.has_events || more > 0)
            && (self.length - self.header_length + more >= settings.segment_size
                || now >= self.created.after(settings.segment_age))
            && self.rotation_retry.is_none_or(|retry_at| Instant::now() >= retry_at)
    }
}

fn remove(settings: &Settings, number: u64) {
    let removed = std::fs::remove_file(segment::path(&settings.path, number));
    removed.unwrap_or_else(|error| tracing::debug!(%error, "cannot remove the new audit segment"));
}
