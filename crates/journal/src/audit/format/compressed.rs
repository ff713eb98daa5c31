//! Compressed segments: the lines of a closed segment in zstd frames, with a table of them at the end.
//!
//! - Each frame has about 1 MiB of whole lines, packed ([`pack`]) and compressed by itself: a line in the middle costs
//!   reading one frame. Offsets of lines stay what they were.
//! - To zstd, a frame is three in succession: what is random among the packed lines is one by itself, which costs no
//!   attempt to compress it.
//! - The table is that of zstd's seekable format, with the lengths of the lines before packing. Each
//!   frame has a checksum.

use std::fs::File;
use std::io::{self, Read, Write as _};
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use zstd::bulk::Compressor;

use super::line;
use super::pack::{self, Packed};
use super::version;
use crate::files;

/// Bytes of lines in a frame. Keys repeat within as many uses; reading it takes a millisecond or two.
const FRAME: usize = 1 << 20;
/// Bytes that are read at a time.
const PIECE: usize = 64 << 10;
/// Bytes of a compressed segment that are written before they are synced: the last sync has little left to do, which
/// others of the journal would wait for.
const SYNC_AFTER: usize = 1 << 20;
/// Level of compression: the higher ones cost several times as much for these lines and gain nothing.
const LEVEL: i32 = 1;
/// Magic numbers of the seekable format: of the skippable frame that holds the table, and of the table's end.
const SKIPPABLE: u32 = 0x184d_2a5e;
const SEEKABLE: u32 = 0x8f92_eab1;
/// Bytes of the table's end: number of frames, descriptor, magic number.
const FOOTER: u64 = 9;
/// Bytes of a row of the table: length of the frame, and of its lines.
const ROW: u64 = 8;
/// Bytes of lines in a frame at most; one with more is damaged.
const MAX_FRAME: u64 = 4 * FRAME as u64;
/// Bytes that packed lines may have, however short the lines are.
const MIN_CAPACITY: usize = 4096;

/// A compressed segment that is open for reading.
#[derive(Debug)]
pub(crate) struct CompressedSegment {
    file: File,
    frames: Vec<Frame>,
    /// The lines of the frame that was read last, and its number.
    read: Option<usize>,
    lines: Vec<u8>,
}

#[derive(Clone, Copy, Debug)]
struct Frame {
    /// Place in the file.
    at: u64,
    size: u64,
    /// Offset of its first line.
    start: u64,
    length: u64,
}

impl CompressedSegment {
    /// Opens a compressed segment; `None` when there is none.
    ///
    /// # Errors
    /// [`io::ErrorKind::InvalidData`] when the table is damaged.
    pub(crate) fn open(path: &Path) -> io::Result<Option<Self>> {
        let Some(file) = files::if_found(File::open(path))? else { return Ok(None) };
        let frames = read_table(&file)?.ok_or_else(|| damaged(path))?;
        Ok(Some(Self { file, frames, read: None, lines: Vec::new() }))
    }

    /// Bytes of the lines.
    pub(crate) fn length(&self) -> u64 {
        self.frames.last().map_or(0, |frame| frame.start + frame.length)
    }

    /// Reads lines from this offset on; at least one byte, unless it is the end.
    ///
    /// # Errors
    /// [`io::ErrorKind::InvalidData`] when the frame is damaged.
    pub(crate) fn read_at(&mut self, out: &mut [u8], offset: u64) -> io::Result<usize> {
        let number = self.frames.partition_point(|frame| frame.start + frame.length <= offset);
        let Some(frame) = self.frames.get(number).copied() else { return Ok(0) };
        if self.read != Some(number) {
            self.read = None;
            self.lines = self.read_frame(frame)?;
            self.read = Some(number);
        }
        let from = usize::try_from(offset - frame.start).map_err(|_| io::ErrorKind::InvalidData)?;
        let lines = &self.lines[from..];
        let length = lines.len().min(out.len());
        out[..length].copy_from_slice(&lines[..length]);
        Ok(length)
    }

    fn read_frame(&self, frame: Frame) -> io::Result<Vec<u8>> {
        let invalid = || io::Error::new(io::ErrorKind::InvalidData, "a frame of a compressed audit segment is damaged");
        let size = |bytes: u64| usize::try_from(bytes).map_err(|_| invalid());
        let mut bytes = vec![0; size(frame.size)?];
        self.file.read_exact_at(&mut bytes, frame.at)?;
        // Packed lines are longer than the lines only where these are short.
        let capacity = size(frame.length)? * 4 + MIN_CAPACITY;
        let packed = zstd::bulk::decompress(&bytes, capacity).map_err(|_| invalid())?;
        version::check(*packed.first().ok_or_else(invalid)?, "a compressed segment of the audit journal")?;
        pack::unpack(&packed, size(frame.length)?).ok_or_else(invalid)
    }
}

fn damaged(path: &Path) -> io::Error {
    let message =
        format!("the compressed audit segment {} is damaged; `keygate audit verify` tells more", path.display());
    io::Error::new(io::ErrorKind::InvalidData, message)
}

/// Reads the table of frames; `None` when it is damaged.
fn read_table(file: &File) -> io::Result<Option<Vec<Frame>>> {
    let size = file.metadata()?.len();
    let Some(footer_at) = size.checked_sub(FOOTER) else { return Ok(None) };
    let mut footer = [0; FOOTER as usize];
    file.read_exact_at(&mut footer, footer_at)?;
    let rows = u64::from(number_at(&footer, 0)) * ROW;
    let table_at = footer_at.checked_sub(rows).filter(|at| *at >= 8 && number_at(&footer, 5) == SEEKABLE);
    let Some(table_at) = table_at else { return Ok(None) };
    let mut table = vec![0; usize::try_from(rows + 8).map_err(|_| io::ErrorKind::InvalidData)?];
    file.read_exact_at(&mut table, table_at - 8)?;
    if number_at(&table, 0) != SKIPPABLE || u64::from(number_at(&table, 4)) != rows + FOOTER {
        return Ok(None);
    }
    let mut at = 0;
    let mut start = 0;
    let mut frames = Vec::new();
    for row in table[8..].chunks_exact(ROW as usize) {
        let frame = Frame { at, size: number_at(row, 0).into(), start, length: number_at(row, 4).into() };
        (at, start) = (at + frame.size, start + frame.length);
        frames.push(frame);
    }
    let is_whole = at == table_at - 8 && frames.iter().all(|frame| (1..=MAX_FRAME).contains(&frame.length));
    Ok(is_whole.then_some(frames))
}

fn number_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("it has 4 bytes"))
}

/// Compresses the lines of a segment into a new file, and returns the number of lines. `proceed` is asked before each
/// frame; `None` when it said no.
pub(crate) fn compress(plain: &mut File, file: &mut File, proceed: impl Fn() -> bool) -> io::Result<Option<u64>> {
    let mut compressor = FrameCompressor::new()?;
    let mut lines = Vec::new();
    let mut table = Vec::new();
    let mut count = 0;
    let mut unsynced = 0;
    while fill(plain, &mut lines)? {
        if !proceed() {
            return Ok(None);
        }
        // A frame ends with a line, unless one line is longer than it.
        let end = match line::whole_length(&lines) {
            0 => lines.len(),
            end => end,
        };
        let frame = compressor.compress(&pack::pack(&lines[..end]))?;
        file.write_all(&frame)?;
        unsynced += frame.len();
        if unsynced >= SYNC_AFTER {
            file.sync_data()?;
            unsynced = 0;
        }
        table.push((frame.len(), end));
        count += memchr::memchr_iter(b'\n', &lines[..end]).count() as u64;
        lines.drain(..end);
    }
    file.write_all(&encode_table(&table)?)?;
    Ok(Some(count))
}

/// Compressor of packed lines.
struct FrameCompressor {
    compressor: Compressor<'static>,
    of_random: Compressor<'static>,
}

impl FrameCompressor {
    fn new() -> io::Result<Self> {
        let new = |level| {
            let mut compressor = Compressor::new(level)?;
            compressor.include_checksum(true)?;
            io::Result::Ok(compressor)
        };
        // The lowest level looks for nothing.
        Ok(Self { compressor: new(LEVEL)?, of_random: new(*zstd::compression_level_range().start())? })
    }

    fn compress(&mut self, packed: &Packed) -> io::Result<Vec<u8>> {
        let Packed { bytes, random } = packed;
        let mut frame = self.compressor.compress(&bytes[..random.start])?;
        frame.extend(self.of_random.compress(&bytes[random.clone()])?);
        frame.extend(self.compressor.compress(&bytes[random.end..])?);
        Ok(frame)
    }
}

/// Reads on until there are as many bytes as a frame has, in pieces: in a long call of the kernel the thread keeps its
/// core. Returns false when there are none.
fn fill(plain: &mut File, lines: &mut Vec<u8>) -> io::Result<bool> {
    while lines.len() < FRAME {
        let piece = PIECE.min(FRAME - lines.len()) as u64;
        if Read::by_ref(plain).take(piece).read_to_end(lines)? == 0 {
            break;
        }
    }
    Ok(!lines.is_empty())
}

fn encode_table(frames: &[(usize, usize)]) -> io::Result<Vec<u8>> {
    let number = |number: usize| u32::try_from(number).map_err(|_| io::ErrorKind::FileTooLarge);
    let mut table = Vec::with_capacity(frames.len() * ROW as usize + 17);
    let rows = frames.len() * ROW as usize;
    for part in [SKIPPABLE, number(rows + FOOTER as usize)?] {
        table.extend_from_slice(&part.to_le_bytes());
    }
    for (size, length) in frames {
        table.extend_from_slice(&number(*size)?.to_le_bytes());
        table.extend_from_slice(&number(*length)?.to_le_bytes());
    }
    table.extend_from_slice(&number(frames.len())?.to_le_bytes());
    // The rows have no checksums: the frames have their own.
    table.push(0);
    table.extend_from_slice(&SEEKABLE.to_le_bytes());
    Ok(table)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn compressed(lines: &[u8]) -> (CompressedSegment, tempfile::TempDir) {
        let directory = tempfile::tempdir().expect("a directory");
        let [plain, target] = ["plain", "target"].map(|name| directory.path().join(name));
        std::fs::write(&plain, lines).expect("a new file");
        let (mut file, mut out) =
            (File::open(&plain).expect("it is there"), File::create(&target).expect("a new file"));
        let count = compress(&mut file, &mut out, || true).expect("there is room");
        assert_eq!(count, Some(lines.iter().filter(|byte| **byte == b'\n').count() as u64));
        (CompressedSegment::open(&target).expect("it is whole").expect("it is there"), directory)
    }

    fn read_all(segment: &mut CompressedSegment, from: u64) -> Vec<u8> {
        let mut out = Vec::new();
        let mut piece = vec![0; 300_000];
        loop {
            match segment.read_at(&mut piece, from + out.len() as u64).expect("it is whole") {
                0 => return out,
                read => out.extend_from_slice(&piece[..read]),
            }
        }
    }

    #[test]
    fn lines_are_read_from_any_offset() {
        let line = |n: usize| format!("line {n} {}\n", "x".repeat(n % 5000));
        let mut lines: Vec<u8> = (0..2000).flat_map(|n| line(n).into_bytes()).collect();
        lines.extend_from_slice(&vec![b'y'; 3 << 20]);
        lines.extend_from_slice(b"\ntorn");
        let (mut segment, _directory) = compressed(&lines);
        assert_eq!(segment.length(), lines.len() as u64);
        assert!(segment.frames.len() > 4);
        for from in [0, 1, 300_000, 1 << 20, (1 << 20) + 1, lines.len() - 3, lines.len(), lines.len() + 9] {
            let expected = lines.get(from..).unwrap_or_default();
            assert!(read_all(&mut segment, from as u64) == expected, "from {from}");
        }
        assert_eq!(compressed(b"").0.length(), 0);
    }

    #[test]
    fn segment_of_another_version_is_refused() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("target");
        let mut packed = pack::pack(b"line\n");
        packed.bytes[0] = version::VERSION + 1;
        let frame = FrameCompressor::new().expect("a compressor").compress(&packed).expect("it is small");
        let table = encode_table(&[(frame.len(), 5)]).expect("it is small");
        std::fs::write(&path, [frame, table].concat()).expect("a new file");
        let mut segment = CompressedSegment::open(&path).expect("it is whole").expect("it is there");
        let error = segment.read_at(&mut [0; 5], 0).expect_err("it is of another version");
        assert_eq!(error.kind(), io::ErrorKind::Unsupported);
        assert!(error.to_string().contains("has format version 3,"), "{error}");
    }

    #[test]
    fn damage_is_detected_wherever_it_is() {
        let lines: Vec<u8> = (0..50_u8).flat_map(|n| format!("line {n}\n").into_bytes()).collect();
        let (_, directory) = compressed(&lines);
        let path = directory.path().join("target");
        let whole = std::fs::read(&path).expect("it is there");
        for at in 0..whole.len() {
            let mut changed = whole.clone();
            changed[at] ^= 4;
            std::fs::write(&path, &changed).expect("it is there");
            let read = CompressedSegment::open(&path).and_then(|segment| {
                let mut out = vec![0; lines.len()];
                let length = segment.ok_or(io::ErrorKind::NotFound)?.read_at(&mut out, 0)?;
                Ok((length, out))
            });
            // The descriptor of the table says nothing that matters.
            let same = |(length, out): &(usize, Vec<u8>)| *length == lines.len() && *out == lines;
            assert!(read.as_ref().is_err() || read.as_ref().is_ok_and(same), "byte {at}: {read:?}");
        }
    }
}
