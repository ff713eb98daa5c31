//! The file `merkle.tree` in the directory of a journal: for each closed segment the hashes of its
//! lines as a run of leaves.
//!
//! - It grows by one row for each segment, and keeps the rows of removed segments: what is left of the journal still
//!   gives the root of every later checkpoint.
//! - It needs no trust: a hash in it that is wrong gives a wrong root.
//! - Rows of segments that are there are made again when the file is lost.
//!
//! ```text
//! {"tree":2,"origin":"example.org/gw-1"}
//! {"segment":1,"begin":0,"end":4711,"nodes":["base64", … ]}
//! ```

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead as _, BufReader, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::audit::format::version::{self, VERSION};
use crate::files;
use tlog::hash;
use tlog::range::LeafRange;

/// Name of the file.
pub(crate) const FILE: &str = "merkle.tree";

#[derive(Serialize, Deserialize)]
struct Header {
    tree: u8,
    origin: String,
}

#[derive(Serialize, Deserialize)]
struct Row {
    segment: u64,
    begin: u64,
    end: u64,
    nodes: Vec<String>,
}

/// The hashes of a closed segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SegmentNodes {
    pub(crate) segment: u64,
    pub(crate) leaves: LeafRange,
}

/// Reader of the rows, in the order of the segments.
pub(crate) struct NodesReader {
    input: BufReader<File>,
    pub(crate) origin: String,
    /// The segment of the last row, and the leaf after it.
    last: Option<(u64, u64)>,
    /// Bytes up to the end of the last good row.
    pub(crate) good: u64,
}

/// Writer of rows.
#[derive(Debug)]
pub(crate) struct NodesWriter {
    file: File,
    /// Rows that could not be written yet, as on a full disk.
    unwritten: Vec<u8>,
}

impl NodesReader {
    /// Opens the file; `None` when there is none, or its first line is damaged.
    ///
    /// # Errors
    /// [`io::ErrorKind::Unsupported`] when it is of another version.
    pub(crate) fn open(directory: &Path) -> io::Result<Option<Self>> {
        let Some(file) = files::if_found(File::open(path(directory)))? else { return Ok(None) };
        let mut input = BufReader::new(file);
        let mut line = Vec::new();
        let read = input.read_until(b'\n', &mut line)? as u64;
        let Ok(header) = serde_json::from_slice::<Header>(&line) else { return Ok(None) };
        version::check(header.tree, path(directory).display())?;
        Ok(Some(Self { input, origin: header.origin, last: None, good: read }))
    }

    /// Reads the next row; `None` at the end, and at a row that is torn or does not follow.
    pub(crate) fn next(&mut self) -> io::Result<Option<SegmentNodes>> {
        let mut line = Vec::new();
        let read = self.input.read_until(b'\n', &mut line)? as u64;
        let follows = |row: &Row| match self.last {
            Some((segment, end)) => segment.checked_add(1) == Some(row.segment) && row.begin == end,
            None => row.begin == 0,
        };
        let row = serde_json::from_slice::<Row>(&line).ok().filter(|row| line.ends_with(b"\n") && follows(row));
        let Some(nodes) = row.and_then(Row::into_nodes) else { return Ok(None) };
        self.last = Some((nodes.segment, nodes.leaves.end()));
        self.good += read;
        Ok(Some(nodes))
    }
}

impl Row {
    fn into_nodes(self) -> Option<SegmentNodes> {
        let hashes = self.nodes.iter().map(|node| hash::decode(node)).collect::<Option<_>>()?;
        let leaves = LeafRange::from_hashes(self.begin, self.end, hashes)?;
        Some(SegmentNodes { segment: self.segment, leaves })
    }
}

impl NodesWriter {
    /// Begins a file. One of another tree is kept under another name.
    pub(crate) fn create(directory: &Path, origin: &str) -> io::Result<Self> {
        let path = path(directory);
        if path.exists() {
            fs::rename(&path, path.with_extension("tree.old"))?;
        }
        let mut file = OpenOptions::new().append(true).create_new(true).mode(0o600).open(path)?;
        file.write_all(&line(&Header { tree: VERSION, origin: origin.to_owned() })?)?;
        file.sync_all()?;
        files::sync_directory(directory)?;
        Ok(Self { file, unwritten: Vec::new() })
    }

    /// Continues a file whose first `good` bytes are right.
    pub(crate) fn resume(directory: &Path, good: u64) -> io::Result<Self> {
        let file = OpenOptions::new().append(true).open(path(directory))?;
        file.set_len(good)?;
        Ok(Self { file, unwritten: Vec::new() })
    }

    /// Appends a row, and brings it to disk.
    ///
    /// # Errors
    /// When it cannot be written; the next row brings it along.
    pub(crate) fn append(&mut self, nodes: &SegmentNodes) -> io::Result<()> {
        let SegmentNodes { segment, leaves } = nodes;
        let hashes = leaves.hashes().map(hash::encode).collect();
        let row = Row { segment: *segment, begin: leaves.begin(), end: leaves.end(), nodes: hashes };
        self.unwritten.append(&mut line(&row)?);
        let before = self.file.metadata()?.len();
        if let Err(error) = self.file.write_all(&self.unwritten) {
            self.file.set_len(before)?;
            return Err(error);
        }
        self.unwritten.clear();
        self.file.sync_data()
    }
}

/// Keeps a copy of the file when the row behind its first `good` bytes is damaged: the rows behind it may be the only
/// hashes that are left of removed segments. A torn row has no line feed.
pub(crate) fn keep_damaged(directory: &Path, good: u64) -> io::Result<()> {
    let path = path(directory);
    let mut row = Vec::new();
    let mut input = BufReader::new(File::open(&path)?);
    input.seek(SeekFrom::Start(good))?;
    input.read_until(b'\n', &mut row)?;
    let copy = path.with_extension("tree.damaged");
    if row.ends_with(b"\n") && !copy.exists() {
        fs::copy(&path, &copy)?;
        tracing::error!(copy = %copy.display(),
            "the hashes of segments of the audit journal are damaged; a copy of the file is kept, and they are made \
             again where the segments are there");
    }
    Ok(())
}

/// Bytes of the file; 0 when there is none.
pub(crate) fn length(directory: &Path) -> io::Result<u64> {
    Ok(files::if_found(fs::metadata(path(directory)))?.map_or(0, |metadata| metadata.len()))
}

fn line(row: &impl Serialize) -> io::Result<Vec<u8>> {
    let mut line = serde_json::to_vec(row)?;
    line.push(b'\n');
    Ok(line)
}

fn path(directory: &Path) -> PathBuf {
    directory.join(FILE)
}

#[cfg(test)]
mod tests {
    use tempfile::TempDir;

    use super::*;

    fn nodes(segment: u64, begin: u64, count: usize) -> SegmentNodes {
        let mut range = LeafRange::new(begin);
        (0..count).for_each(|n| range.push(hash::leaf(n.to_string().as_bytes())));
        SegmentNodes { segment, leaves: range }
    }

    fn read(directory: &Path) -> (Vec<SegmentNodes>, u64) {
        let mut reader = NodesReader::open(directory).unwrap().unwrap();
        let rows = std::iter::from_fn(|| reader.next().unwrap()).collect();
        (rows, reader.good)
    }

    #[test]
    fn rows_are_read_up_to_a_torn_one_and_continued() {
        let directory = TempDir::new().unwrap();
        assert!(NodesReader::open(directory.path()).unwrap().is_none());
        let rows = [nodes(3, 0, 5), nodes(4, 5, 0), nodes(5, 5, 11)];
        let mut writer = NodesWriter::create(directory.path(), "log").unwrap();
        rows.iter().for_each(|row| writer.append(row).unwrap());
        assert_eq!(read(directory.path()).0, rows);
        let whole = fs::read(path(directory.path())).unwrap();
        fs::write(path(directory.path()), &whole[..whole.len() - 1]).unwrap();
        let (found, good) = read(directory.path());
        assert_eq!(found, rows[..2]);
        NodesWriter::resume(directory.path(), good).unwrap().append(&rows[2]).unwrap();
        assert_eq!(fs::read(path(directory.path())).unwrap(), whole);
    }

    #[test]
    fn file_of_another_version_is_refused() {
        let directory = TempDir::new().unwrap();
        fs::write(path(directory.path()), "{\"tree\":1,\"origin\":\"log\"}\n").unwrap();
        let error = NodesReader::open(directory.path()).map(drop).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::Unsupported);
        assert!(error.to_string().contains("has format version 1,"), "{error}");
    }

    #[test]
    fn damaged_rows_are_kept_and_torn_ones_are_not() {
        for (at, is_kept) in [(-1_isize, false), (-40, true)] {
            let directory = TempDir::new().unwrap();
            let mut writer = NodesWriter::create(directory.path(), "log").unwrap();
            [nodes(3, 0, 5), nodes(4, 5, 3)].iter().for_each(|row| writer.append(row).unwrap());
            let mut bytes = fs::read(path(directory.path())).unwrap();
            let at = bytes.len().checked_add_signed(at).unwrap();
            bytes[at] ^= 0x80;
            fs::write(path(directory.path()), &bytes).unwrap();
            let (rows, good) = read(directory.path());
            assert_eq!(rows.len(), 1);
            keep_damaged(directory.path(), good).unwrap();
            let copy = path(directory.path()).with_extension("tree.damaged");
            assert_eq!(fs::read(copy).is_ok_and(|kept| kept == bytes), is_kept);
        }
    }

    #[test]
    fn row_that_does_not_follow_ends_the_file() {
        for wrong in [nodes(5, 5, 1), nodes(4, 6, 1), nodes(3, 5, 1)] {
            let directory = TempDir::new().unwrap();
            let mut writer = NodesWriter::create(directory.path(), "log").unwrap();
            [nodes(3, 0, 5), wrong].iter().for_each(|row| writer.append(row).unwrap());
            assert_eq!(read(directory.path()).0.len(), 1);
        }
    }
}
