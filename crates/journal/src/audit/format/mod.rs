//! The journal on disk: segment files of lines, each line an event in a frame.
//!
//! Every part of the journal reads and writes through these modules. Their format has one version, and a journal of
//! another one is refused ([`version`]). `docs/audit/format.md` has all of it, for those who read lines by themselves.
//!
//! - [`segment`]: segment files: names, listing, and blocks; [`source`]: reading them, plain or compressed
//!   ([`compressed`], [`pack`]).
//! - [`line`]: the lines of a segment; the kind and the id of a line without parsing it.
//! - [`frame`]: the number and the checksum around each event.
//! - [`event`]: the events of a use; [`encode`]: their compact lines; [`decode`]: the one way to read them.
//! - [`segment_event`]: the events about segments, in JSON: header, seal and expired.
//! - [`prepared`]: fields of compact lines that seldom change on a connection; [`field`] and
//!   [`id_text`]: single fields.
//! - [`open_uses`]: the uses that are open where a segment begins, by the headers; [`begun_uses`]: at any place, with
//!   the lines of their beginnings.
//! - [`record`]: the input of the journal ([`record::Use`], [`record::UseEnd`]) and its output ([`record::Record`]).
//! - [`route_name`]: names of listed routes, each of which is in memory once.
//! - [`phrases`]: phrases of user agents, which are short in a line.
//! - [`escape`]: text from requests, capped and escaped.
//! - [`seal`]: the digest of a closed segment.
//! - [`pieces`]: reading a segment line by line in bounded memory; [`lines_at`]: single lines by their places.

pub(crate) mod version;
pub(crate) mod route_name;
pub(crate) mod record;
pub(crate) mod escape;
pub(crate) mod phrases;
pub(crate) mod id_text;
pub(crate) mod line;
pub(crate) mod frame;
pub(crate) mod event;
pub(crate) mod field;
pub(crate) mod prepared;
pub(crate) mod encode;
pub(crate) mod decode;
pub(crate) mod segment_event;
pub(crate) mod open_uses;
pub(crate) mod begun_uses;
pub(crate) mod segment;
pub(crate) mod pack;
pub(crate) mod compressed;
pub(crate) mod source;
pub(crate) mod stream_position;
pub(crate) mod seal;
pub(crate) mod pieces;
pub(crate) mod lines_at;
#[cfg(test)]
mod documented;
