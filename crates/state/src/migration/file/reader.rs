//! Reader of a file: checks every line, and at the end the counts and the SHA-256.

use std::io::{self, BufRead, Read as _};

use serde::Deserialize;
use sha2::{Digest as _, Sha256};

use super::invalid_record::InvalidRecord;
use super::line::{self, Line};
use super::owners::Owners;
use super::writer::hex;
use super::{Counts, FORMAT, Header, MAX_LINE, OLDEST_VERSION, Summary, VERSION};
use crate::StateRecord;

/// Errors that [`verify`] collects; a file that is wrong from some line on would have thousands.
const MAX_ERRORS: usize = 20;

/// Reads a file record by record.
pub struct Reader<R> {
    input: R,
    /// Number of the last line that was read.
    line: u64,
    /// Bytes of the lines that were read.
    bytes: u64,
    counts: Counts,
    hash: Sha256,
    summary: Option<Summary>,
    owners: Owners,
    /// Lines that are not valid were skipped: the counts and the SHA-256 say nothing more.
    is_flawed: bool,
}

/// An error of a file, with its line.
#[derive(Debug, thiserror::Error)]
#[error("line {line}: {flaw}")]
pub struct FileError {
    /// Number of the line, from 1.
    pub line: u64,
    /// The flaw.
    #[source]
    pub flaw: Flaw,
}

/// A flaw of a file.
#[derive(Debug, thiserror::Error)]
pub enum Flaw {
    /// The first line is not that of an export.
    #[error("this is not an exported state: it has to begin with {{\"format\":\"{FORMAT}\",…}}")]
    NotAnExport,
    /// The format has another version.
    #[error(
        "the format has version {0}, and this keygate reads versions {OLDEST_VERSION} to {VERSION}; import it with a \
         keygate that exports such files"
    )]
    Version(u64),
    /// A line is longer than a record can be.
    #[error("the line is longer than {MAX_LINE} bytes; take another copy of the file")]
    TooLong,
    /// A record is not valid.
    #[error("{0}; take another copy of the file")]
    Record(#[from] InvalidRecord),
    /// The file ends without its last line.
    #[error("the file ends here, without its last line: it was truncated; take another copy of the file")]
    Truncated,
    /// There are lines after the last one.
    #[error("there is more after the last line; take another copy of the file")]
    AfterEnd,
    /// The number of records differs from the last line.
    #[error(
        "records are missing or too many: the last line counts {expected:?}, the file has {found:?}; take another copy"
    )]
    Counts {
        /// As the last line has them.
        expected: Box<Counts>,
        /// As they are.
        found: Box<Counts>,
    },
    /// The lines are not those that were exported.
    #[error(
        "the SHA-256 of the lines differs: some were changed, or put in another order; take another copy of the file"
    )]
    Checksum,
    /// The file could not be read.
    #[error("cannot be read: {0}")]
    Io(#[from] io::Error),
}

impl<R: BufRead> Reader<R> {
    /// Begins to read a file: its first line.
    ///
    /// # Errors
    /// [`FileError`].
    pub fn begin(input: R) -> Result<(Self, Header), FileError> {
        let mut reader = Self {
            input,
            line: 0,
            bytes: 0,
            counts: Counts::default(),
            hash: Sha256::new(),
            summary: None,
            owners: Owners::default(),
            is_flawed: false,
        };
        let first = reader.read_line()?.ok_or(FileError { line: 1, flaw: Flaw::NotAnExport })?;
        let header = parse_header(&first).map_err(|flaw| FileError { line: 1, flaw })?;
        Ok((reader, header))
    }

    /// Number of the last line that was read, from 1.
    pub fn line(&self) -> u64 {
        self.line
    }

    /// Bytes of the lines that were read.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The last line, once it was read.
    pub fn summary(&self) -> Option<&Summary> {
        self.summary.as_ref()
    }

    /// Reads the next record; none at the end of the file, whose last line was then checked.
    ///
    /// # Errors
    /// [`FileError`]. After one of a record, the next line can be read.
    pub fn next_record(&mut self) -> Result<Option<StateRecord>, FileError> {
        let Some(text) = self.read_line()? else { return self.check_end() };
        let parsed = self.parse(&text);
        self.is_flawed |= parsed.is_err();
        parsed
            .map_err(|flaw| FileError { line: self.line, flaw })?
            .map_or_else(|| self.next_record(), |record| Ok(Some(record)))
    }

    /// Parses a line: a record, or none for the last line.
    fn parse(&mut self, text: &[u8]) -> Result<Option<StateRecord>, Flaw> {
        if self.summary.is_some() {
            return Err(Flaw::AfterEnd);
        }
        match serde_json::from_slice::<Line>(text).map_err(InvalidRecord::from) {
            Ok(Line::End(summary)) => {
                self.summary = Some(summary);
                Ok(None)
            }
            parsed => {
                self.hash.update(text);
                // Every line that was written whole has its end.
                if parsed.is_err() && !text.ends_with(b"\n") {
                    return Err(Flaw::Truncated);
                }
                let record = parsed.and_then(Line::into_record)?;
                line::count(&mut self.counts, &record);
                self.owners.add(&record, self.is_flawed)?;
                Ok(Some(record))
            }
        }
    }

    /// Reads a line with its end; none at the end of the file.
    fn read_line(&mut self) -> Result<Option<Vec<u8>>, FileError> {
        let mut text = Vec::new();
        let failed = |line, flaw: Flaw| FileError { line, flaw };
        let limit = MAX_LINE as u64 + 1;
        let read = self.input.by_ref().take(limit).read_until(b'\n', &mut text);
        read.map_err(|error| failed(self.line + 1, error.into()))?;
        if text.is_empty() {
            return Ok(None);
        }
        self.line += 1;
        self.bytes += text.len() as u64;
        if text.len() > MAX_LINE {
            self.is_flawed = true;
            skip_line(&mut self.input).map_err(|error| failed(self.line, error.into()))?;
            return Err(failed(self.line, Flaw::TooLong));
        }
        Ok(Some(text))
    }

    fn check_end(&mut self) -> Result<Option<StateRecord>, FileError> {
        let failed = |flaw| Err(FileError { line: self.line, flaw });
        let Some(summary) = &self.summary else { return failed(Flaw::Truncated) };
        if self.is_flawed {
            return Ok(None);
        }
        if summary.counts != self.counts {
            return failed(Flaw::Counts { expected: Box::new(summary.counts), found: Box::new(self.counts) });
        }
        let same = hex(self.hash.clone()) == summary.sha256;
        if same { Ok(None) } else { failed(Flaw::Checksum) }
    }
}

/// Checks a whole file, and returns its first and its last line.
///
/// # Errors
/// The errors of all lines, up to 20 of them.
pub fn verify(input: impl BufRead) -> Result<(Header, Summary), Vec<FileError>> {
    let (mut reader, header) = Reader::begin(input).map_err(|error| vec![error])?;
    let mut errors = Vec::new();
    loop {
        match reader.next_record() {
            Ok(Some(_)) => {}
            Ok(None) => break,
            Err(error) => {
                let is_last =
                    matches!(error.flaw, Flaw::Io(_) | Flaw::Truncated | Flaw::Counts { .. } | Flaw::Checksum);
                errors.push(error);
                if is_last || errors.len() == MAX_ERRORS {
                    break;
                }
            }
        }
    }
    match reader.summary {
        Some(summary) if errors.is_empty() => Ok((header, summary)),
        _ => Err(errors),
    }
}

fn parse_header(text: &[u8]) -> Result<Header, Flaw> {
    /// Fields that every version of the first line has.
    #[derive(Deserialize)]
    struct Beginning {
        format: String,
        version: u64,
    }
    let beginning: Beginning = serde_json::from_slice(text).map_err(|_| Flaw::NotAnExport)?;
    match beginning.version {
        _ if beginning.format != FORMAT => Err(Flaw::NotAnExport),
        OLDEST_VERSION..=VERSION => serde_json::from_slice(text).map_err(|_| Flaw::NotAnExport),
        other => Err(Flaw::Version(other)),
    }
}

fn skip_line(input: &mut impl BufRead) -> io::Result<()> {
    loop {
        let buffer = input.fill_buf()?;
        let (length, is_end) = match buffer.iter().position(|byte| *byte == b'\n') {
            Some(end) => (end + 1, true),
            None => (buffer.len(), buffer.is_empty()),
        };
        input.consume(length);
        if is_end {
            return Ok(());
        }
    }
}
