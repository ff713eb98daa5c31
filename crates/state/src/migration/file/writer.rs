//! Writer of a file: lines, with their counts and their SHA-256.

use data_encoding::HEXLOWER;
use sha2::{Digest as _, Sha256};

use super::line::{self, Line};
use super::{Counts, FORMAT, Header, Summary, VERSION};
use crate::StateRecord;
use domain::clock::Micros;

/// Writes the lines of a file.
#[derive(Default)]
pub struct Writer {
    counts: Counts,
    hash: Sha256,
}

impl Writer {
    /// Begins a file: returns its first line.
    pub fn begin(time: Micros, state: &str) -> (Self, Vec<u8>) {
        let header = Header { format: FORMAT.to_owned(), version: VERSION, time, state: state.to_owned() };
        (Self::default(), line_of(&header))
    }

    /// Returns the lines of some records.
    pub fn lines(&mut self, records: &[StateRecord]) -> Vec<u8> {
        let mut text = Vec::new();
        for record in records {
            line::count(&mut self.counts, record);
            line::lines(record).iter().for_each(|line| text.extend(line_of(line)));
        }
        self.hash.update(&text);
        text
    }

    /// Returns the last line.
    pub fn end(self) -> Vec<u8> {
        line_of(&Line::End(Summary { counts: self.counts, sha256: hex(self.hash) }))
    }
}

/// The SHA-256 as 64 hexadecimal digits.
pub(super) fn hex(hash: Sha256) -> String {
    HEXLOWER.encode(&hash.finalize())
}

fn line_of(value: &impl serde::Serialize) -> Vec<u8> {
    let mut line = serde_json::to_vec(value).expect("records are structs of texts and numbers");
    line.push(b'\n');
    line
}
