//! The open object: a hidden file to which blocks are appended.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::time::{Duration, Instant};

use super::block;
use crate::audit::StreamPosition;
use crate::files;

/// The open object of a journal.
#[derive(Debug)]
pub(super) struct OpenObject {
    file: File,
    /// Bytes of its blocks.
    length: u64,
    /// Line of the journal before its first record; none without records.
    first_line: Option<u64>,
    /// Time of its first record; of its reopening, after a restart.
    begun: Instant,
    position: StreamPosition,
}

impl OpenObject {
    /// Creates an object without records, at a position. It is on the disk when this returns.
    pub(super) fn create(path: &Path, position: StreamPosition) -> io::Result<Self> {
        let file = files::create(path)?;
        let mut object = Self { file, length: 0, first_line: None, begun: Instant::now(), position };
        object.append(position.line, &[], position)?;
        Ok(object)
    }

    /// Opens an object, and cuts off what is not whole; `None` when there is none, or nothing of it is whole.
    pub(super) fn reopen(path: &Path) -> io::Result<Option<Self>> {
        let Some(bytes) = files::if_found(fs::read(path))? else { return Ok(None) };
        let mut length = 0;
        let mut first_line = None;
        let mut position = None;
        while let Some((header, whole)) = block::decode(&bytes[length..]) {
            length += whole;
            position = Some(header.position);
            first_line = first_line.or(header.has_records().then_some(header.from));
        }
        let Some(position) = position else { return Ok(None) };
        let file = File::options().read(true).write(true).open(path)?;
        if length < bytes.len() {
            file.set_len(length as u64)?;
            file.sync_data()?;
        }
        Ok(Some(Self { file, length: length as u64, first_line, begun: Instant::now(), position }))
    }

    pub(super) fn position(&self) -> StreamPosition {
        self.position
    }

    /// Line of the journal before its first record.
    pub(super) fn first_line(&self) -> u64 {
        self.first_line.unwrap_or(self.position.line)
    }

    /// Appends lines, which may be none, and the position after them. They are on the disk when this returns; after a
    /// failure, the object must be opened anew.
    pub(super) fn append(&mut self, from: u64, lines: &[u8], position: StreamPosition) -> io::Result<()> {
        let block = block::encode(from, lines, position)?;
        self.file.write_all_at(&block, self.length)?;
        self.file.sync_data()?;
        self.length += block.len() as u64;
        self.position = position;
        if !lines.is_empty() && self.first_line.is_none() {
            self.first_line = Some(from);
            self.begun = Instant::now();
        }
        Ok(())
    }

    /// True for an object with records that is large or old enough to be closed.
    pub(super) fn is_due(&self, size: u64, every: Duration) -> bool {
        self.first_line.is_some() && (self.length >= size || self.begun.elapsed() >= every)
    }
}
