//! The journal on disk: segment files of lines, each line a JSON event in a frame.
//!
//! Every part of the journal reads and writes through these modules; their format is fixed, since old journals must
//! stay readable.
//!
//! - [`segment`]: segment files: names, listing, and reading in blocks.
//! - [`line`]: the lines of a segment; the kind and the id of a line without parsing it.
//! - [`frame`]: the number and the checksum around each event.
//! - [`event`]: the events: header, use, outcome, record, seal, carried and expired.
//! - [`open_uses`]: the uses that are open where a segment begins, by the headers.
//! - [`record`]: the input of the journal ([`record::Use`], [`record::UseEnd`]) and its output ([`record::Record`]).
//! - [`escape`]: text from requests, capped and escaped.
//! - [`seal`]: the digest of a closed segment.
//! - [`pieces`]: reading a segment line by line in bounded memory.

pub(crate) mod record;
pub(crate) mod escape;
pub(crate) mod line;
pub(crate) mod frame;
pub(crate) mod event;
pub(crate) mod segment_event;
pub(crate) mod open_uses;
pub(crate) mod segment;
pub(crate) mod seal;
pub(crate) mod pieces;
