//! Compression of closed segments.
//!
//! - A compressed segment is on disk under another name before it gets its own, and the plain one is removed after
//!   that: a crash loses nothing, and the next start removes what it left behind.
//! - A segment is compressed before it is sealed: what is sealed never changes. Where there is no room, it waits for
//!   it; only the oldest one is sealed as it is.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use crate::audit::format::compressed::{self, CompressedSegment};
use crate::audit::format::segment;
use crate::files;
use platform::disk;

/// The part of its size to which a segment is compressed at most, as a rule: lines that have much in common shrink to a
/// twentieth, others to a fifth.
const LEAST_RATIO: u64 = 4;
/// Bytes that are written at a time when a segment is made plain again.
const PIECE: usize = 1 << 20;

/// Compresses a closed segment, removes the plain file, and returns the number of lines. `proceed` is asked now and
/// then; `None`, and the plain file is there as before, when it said no.
///
/// # Errors
/// [`io::ErrorKind::NotFound`] when there is no plain file.
pub(crate) fn compress_segment(directory: &Path, number: u64, proceed: impl Fn() -> bool) -> io::Result<Option<u64>> {
    let plain = segment::path(directory, number);
    let temporary = temporary_path(directory, number);
    let mut source = File::open(&plain)?;
    check_room(directory, source.metadata()?.len())?;
    let lines = write_compressed(&mut source, &temporary, proceed);
    if !matches!(lines, Ok(Some(_))) {
        let removed = fs::remove_file(&temporary);
        removed.unwrap_or_else(|error| tracing::debug!(%error, "no unfinished compressed segment to remove"));
        return lines;
    }
    let compressed = segment::compressed_path(directory, number);
    fs::rename(&temporary, &compressed)?;
    // One of the two files stays, so that it is clear which one the seal is of.
    files::sync_directory(directory).and_then(|()| fs::remove_file(&plain)).inspect_err(|_| {
        let removed = fs::remove_file(&compressed);
        removed.unwrap_or_else(|error| tracing::debug!(%error, "cannot remove a compressed segment again"));
    })?;
    lines
}

/// Fails when there is less room than a segment of this size may take: compressing a large one to find that out would
/// cost as much as compressing it.
fn check_room(directory: &Path, size: u64) -> io::Result<()> {
    let has_room = disk::volume_space(directory).map_or(true, |space| space.free >= size / LEAST_RATIO);
    if has_room { Ok(()) } else { Err(io::ErrorKind::StorageFull.into()) }
}

fn write_compressed(plain: &mut File, target: &Path, proceed: impl Fn() -> bool) -> io::Result<Option<u64>> {
    let mut file = files::create(target)?;
    let lines = compressed::compress(plain, &mut file, proceed)?;
    // Retention goes by the time of the last line.
    file.set_modified(plain.metadata()?.modified()?)?;
    file.sync_all()?;
    Ok(lines)
}

fn temporary_path(directory: &Path, number: u64) -> PathBuf {
    directory.join(format!("{number:010}.jsonl.zst.tmp"))
}

/// Removes what a crash has left behind: unfinished files, and plain segments that were compressed already; and the
/// indexes of versions that had one file for each segment.
pub(crate) fn remove_leftovers(directory: &Path) -> io::Result<()> {
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let removed = if [".jsonl.zst.tmp", ".jsonl.tmp", ".index"].iter().any(|end| name.ends_with(end)) {
            fs::remove_file(&path)
        } else if let Some(number) = name.strip_suffix(".jsonl").and_then(|number| number.parse().ok()) {
            remove_plain_leftover(directory, number, &path)
        } else {
            Ok(())
        };
        removed.unwrap_or_else(|error| {
            tracing::warn!(%error, path = %path.display(), "cannot remove what an interrupted compression left behind");
        });
    }
    Ok(())
}

fn remove_plain_leftover(directory: &Path, number: u64, plain: &Path) -> io::Result<()> {
    let path = segment::compressed_path(directory, number);
    match files::if_intact(CompressedSegment::open(&path))? {
        Some(None) => Ok(()),
        Some(Some(found)) if found.length() == fs::metadata(plain)?.len() => fs::remove_file(plain),
        // The plain file is the one to go on with.
        _ => fs::remove_file(path),
    }
}

/// Makes a compressed segment a plain one again: the last one of a journal whose later segments were lost is continued.
pub(crate) fn expand_segment(directory: &Path, number: u64) -> io::Result<()> {
    let path = segment::compressed_path(directory, number);
    let Some(mut found) = CompressedSegment::open(&path)? else { return Ok(()) };
    let temporary = segment::path(directory, number).with_extension("jsonl.tmp");
    let mut file = files::create(&temporary)?;
    let mut at = 0;
    let mut piece = vec![0; PIECE];
    while at < found.length() {
        let read = found.read_at(&mut piece, at)?;
        file.write_all(&piece[..read])?;
        at += read as u64;
    }
    file.sync_all()?;
    fs::rename(&temporary, segment::path(directory, number))?;
    files::sync_directory(directory)?;
    fs::remove_file(path)
}
