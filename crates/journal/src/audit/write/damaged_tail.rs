//! The end of a journal at a start: what a crash has left there is cut off, and damage is set aside.
//!
//! - Damaged lines go to a file `NNNNNNNNNN.jsonl.damaged` beside the segments, which is on disk before they are
//!   cut off. A line of the journal tells it, so that `audit verify` reports it; the log has an error, and a
//!   metric counts the files.
//! - Lines that the last gateway had on disk when it ended are known by the index that it left: of
//!   these, a crash takes none.

use std::fs::{self, File};
use std::io::{self, Seek as _, SeekFrom};
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use super::torn_tail::Tail;
use super::writer::JournalWriter;
use crate::audit::format::line::EventKind;
use crate::audit::format::segment_event::Damaged;
use crate::audit::format::{frame, pieces, segment};
use crate::audit::index::lookup;
use crate::files;
use domain::clock;

/// Bytes that are read at a time.
const PIECE: usize = 256 << 10;
/// Part of the names of the files.
const SUFFIX: &str = ".jsonl.damaged";

/// Removes what is behind the last good line of a segment, which ends at `end`. A segment without a good line goes as a
/// whole. Returns the damage; `None` when there is nothing but what a crash can leave.
pub(crate) fn clear(directory: &Path, number: u64, file: &File, end: u64) -> io::Result<Option<Damaged<'static>>> {
    let (bytes, tail) = read_tail(file, end)?;
    let written = lookup::indexed_length(directory, number).map(|length| length.saturating_sub(end));
    let written = written.filter(|written| *written > 0);
    let path = segment::path(directory, number);
    if tail.is_torn() && written.is_none() && !has_lost_line_feed(file, end + bytes, &tail)? {
        if bytes > 0 || end == 0 {
            tracing::warn!(path = %path.display(), bytes, "cut a torn tail off the audit journal");
            cut(&path, file, end)?;
        }
        return Ok(None);
    }
    let mut damaged = Damaged {
        e: EventKind::Damaged,
        time: clock::now(),
        segment: number,
        offset: end,
        bytes,
        lines: tail.lines,
        written: written.filter(|written| *written > bytes),
        file: None,
        handed_over: false,
    };
    if bytes > 0 {
        let name = free_name(directory, number);
        set_aside(directory, &path, (file, end), &directory.join(&name))?;
        damaged.file = Some(name.into());
    }
    tracing::error!(%damaged, path = %directory.display(),
        "the end of the audit journal was damaged, and this is no torn write; check the disk, and compare with what \
         was shipped");
    Ok(Some(damaged))
}

fn read_tail(file: &File, end: u64) -> io::Result<(u64, Tail)> {
    let mut tail = Tail::new(end);
    let mut bytes = 0;
    let mut piece = vec![0; PIECE];
    loop {
        match files::fill(&mut piece, end + bytes, |out, at| file.read_at(out, at))? {
            0 => return Ok((bytes, tail)),
            read => {
                tail.push(&piece[..read]);
                bytes += read as u64;
            }
        }
    }
}

/// Returns whether a tail that ends at `at` ends with a good line that another byte follows, in place of its line feed:
/// a torn write has the line feed, or ends before it.
fn has_lost_line_feed(file: &File, at: u64, tail: &Tail) -> io::Result<bool> {
    let length = tail.unfinished().min(PIECE as u64);
    let line = pieces::read_line(file, at - length, usize::try_from(length).unwrap_or(PIECE))?;
    Ok(line.split_last().is_some_and(|(_, line)| frame::verify_line(line).is_some()))
}

/// Cuts a segment off at `end`; removes one of which nothing is left.
fn cut(path: &Path, file: &File, end: u64) -> io::Result<()> {
    if end == 0 { fs::remove_file(path) } else { file.set_len(end) }
}

/// A name that no file of damaged lines has.
fn free_name(directory: &Path, number: u64) -> String {
    let first = format!("{number:010}{SUFFIX}");
    let later = (2..).map(|count| format!("{first}.{count}"));
    let mut names = std::iter::once(first.clone()).chain(later);
    names.find(|name| !directory.join(name).exists()).expect("the numbers do not end")
}

/// Moves the bytes of a segment from `end` on to another file, which is on disk before they are cut off.
fn set_aside(directory: &Path, path: &Path, (file, end): (&File, u64), target: &Path) -> io::Result<()> {
    if end == 0 {
        fs::rename(path, target)?;
        return files::sync_directory(directory);
    }
    let temporary = path.with_extension("jsonl.tmp");
    let mut copy = files::create(&temporary)?;
    let mut tail = file;
    tail.seek(SeekFrom::Start(end))?;
    io::copy(&mut tail, &mut copy)?;
    copy.sync_all()?;
    fs::rename(&temporary, target)?;
    files::sync_directory(directory)?;
    file.set_len(end)
}

/// Keeps the spool of a predecessor that has damaged lines, and tells it in the journal.
pub(crate) fn set_spool_aside(writer: &JournalWriter, number: u64, spool: &Path, lines: u64) -> io::Result<()> {
    let directory = &writer.settings.path;
    let name = free_name(directory, number);
    let bytes = fs::metadata(spool)?.len();
    fs::rename(spool, directory.join(&name))?;
    files::sync_directory(directory)?;
    let damaged = Damaged {
        e: EventKind::Damaged,
        time: clock::now(),
        segment: number,
        offset: 0,
        bytes,
        lines,
        written: None,
        file: Some(name.into()),
        handed_over: true,
    };
    tracing::error!(%damaged, path = %directory.display(), "check the disk, and compare with what was shipped");
    writer.append_event(&damaged);
    count_files(writer);
    Ok(())
}

/// Counts the files of damaged lines beside the segments of a journal, for its metric.
pub(crate) fn count_files(writer: &JournalWriter) {
    let Ok(entries) = fs::read_dir(&writer.settings.path) else { return };
    let is_damaged = |entry: &fs::DirEntry| entry.file_name().to_str().is_some_and(|name| name.contains(SUFFIX));
    let count = entries.filter_map(Result::ok).filter(is_damaged).count();
    writer.metrics.damaged_files.set(i64::try_from(count).unwrap_or(i64::MAX));
}
