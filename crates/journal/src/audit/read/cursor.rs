//! Cursor of a listing.

use std::fmt;
use std::str::FromStr;

use crate::audit::format::segment::Point;

/// Cursor of a listing: the records before it are still to be listed, all newer ones have been. Text form
/// `SEGMENT-OFFSET`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct JournalCursor {
    pub(crate) point: Point,
}

/// The text is not a cursor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected a cursor of the form SEGMENT-OFFSET")]
pub struct InvalidJournalCursor;

impl fmt::Display for JournalCursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.point.segment, self.point.offset)
    }
}

impl FromStr for JournalCursor {
    type Err = InvalidJournalCursor;

    fn from_str(text: &str) -> Result<Self, InvalidJournalCursor> {
        let (segment, offset) = text.split_once('-').ok_or(InvalidJournalCursor)?;
        let number = |text: &str| text.parse().map_err(|_| InvalidJournalCursor);
        Ok(Self { point: Point { segment: number(segment)?, offset: number(offset)? } })
    }
}
