//! Cursors of a listing of a view.

use std::fmt;
use std::str::FromStr;

use uuid::Uuid;

use crate::audit::format::record::Record;
use crate::audit::read::cursor::{InvalidJournalCursor, JournalCursor};
use domain::clock::Micros;

/// Place of a record in the order over all gateways: by time, then by id. Text form `TIME.ID`, in microseconds and
/// hexadecimal digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RecordPlace {
    /// Time of the record.
    pub time: Micros,
    /// Its id.
    pub id: Uuid,
}

/// The text is not a place of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected a place of the form TIME.ID")]
pub struct InvalidPlace;

/// Cursor of a listing: the records before it are still to be listed, all newer ones have been.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ViewCursor {
    /// A position in the journal of one gateway, which means nothing at another one.
    Journal(JournalWalk),
    /// A place in the order of the records of all gateways.
    Fleet(RecordPlace),
}

/// Cursor of a listing of one journal. Text form `SEGMENT-OFFSET`, with `@` and the place of `JournalWalk::below`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JournalWalk {
    pub(super) cursor: JournalCursor,
    /// Only records before this place are listed: the listing began with records of all gateways.
    pub(super) below: Option<RecordPlace>,
}

impl RecordPlace {
    /// The place of a record.
    pub(super) fn of(record: &Record) -> Self {
        Self { time: record.time, id: record.id }
    }
}

impl fmt::Display for RecordPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.time.0, self.id.simple())
    }
}

impl FromStr for RecordPlace {
    type Err = InvalidPlace;

    fn from_str(text: &str) -> Result<Self, InvalidPlace> {
        let (time, id) = text.split_once('.').filter(|(_, id)| id.len() == 32).ok_or(InvalidPlace)?;
        let time = time.parse().map_err(|_| InvalidPlace)?;
        Ok(Self { time: Micros(time), id: Uuid::try_parse(id).map_err(|_| InvalidPlace)? })
    }
}

impl fmt::Display for JournalWalk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.below {
            None => self.cursor.fmt(f),
            Some(below) => write!(f, "{}@{below}", self.cursor),
        }
    }
}

impl FromStr for JournalWalk {
    type Err = InvalidJournalCursor;

    fn from_str(text: &str) -> Result<Self, InvalidJournalCursor> {
        let (cursor, below) = match text.split_once('@') {
            None => (text, None),
            Some((cursor, below)) => (cursor, Some(below.parse().map_err(|_| InvalidJournalCursor)?)),
        };
        Ok(Self { cursor: cursor.parse()?, below })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cursors_are_their_text() {
        for text in ["7-4096", "7-4096@1763800000000000.0197c1de000070008000000000000004"] {
            assert_eq!(text.parse::<JournalWalk>().unwrap().to_string(), text);
        }
        let place = "1763800000000000.0197c1de000070008000000000000004";
        assert_eq!(place.parse::<RecordPlace>().unwrap().to_string(), place);
        for text in ["", "7", "7-4096@", "7-4096@1.2", "x-1"] {
            assert!(text.parse::<JournalWalk>().is_err(), "{text}");
        }
        assert!("1.0197c1de-0000-7000-8000-000000000004".parse::<RecordPlace>().is_err());
    }
}
