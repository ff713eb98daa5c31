//! Lines of fields as they stand in a head of HTTP/1.1 (RFC 9112, section 5).
//!
//! All that the gateway adds to a head, but for the id of the request, is the same for all requests of a key or a
//! connection. A table of fields ([`http::HeaderMap`]) would take each of them with a hash, a search and a move, and
//! would be read again field by field to be written: some 300 instructions for each. Lines are made once, and copied.

use std::ops::Range;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue};

use crate::identity::{IDENTITY_FIELDS, ORIGIN_FIELDS, X_REQUEST_ID};

/// Between a name and its value.
pub(crate) const SEPARATOR: &[u8] = b": ";
/// End of a line.
pub(crate) const LINE_END: &[u8] = b"\r\n";

/// Bytes that the lines of a connection or a user usually need.
const USUAL_LENGTH: usize = 256;

/// Lines of fields, each with its end. Clones share them.
///
/// - Names are valid and in lower case, values are valid, and no line is folded.
/// - No name comes twice.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FieldLines(Bytes);

/// Lines that are being written.
#[derive(Debug, Default)]
pub struct LineBuffer(Vec<u8>);

impl FieldLines {
    /// Lines in an allocation of their own, for long.
    pub fn of(write: impl FnOnce(&mut LineBuffer)) -> Self {
        let mut buffer = LineBuffer(Vec::with_capacity(USUAL_LENGTH));
        write(&mut buffer);
        Self(buffer.0.into_boxed_slice().into())
    }

    /// Lines in memory that they share with others.
    pub(crate) fn shared(bytes: Bytes) -> Self {
        Self(bytes)
    }

    /// The lines as they are sent.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Returns whether there is no line.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The fields, in their order. The values share the memory of the lines.
    pub fn fields(&self) -> impl Iterator<Item = (&str, HeaderValue)> {
        self.0.split_inclusive(|byte| *byte == b'\n').map(|line| {
            let line = line.strip_suffix(LINE_END).expect("each line has its end");
            let colon = line.iter().position(|byte| *byte == b':').expect("a line has a name");
            let name = str::from_utf8(&line[..colon]).expect("a name is ASCII");
            let value = self.0.slice_ref(&line[colon + SEPARATOR.len()..]);
            (name, HeaderValue::from_maybe_shared(value).expect("the value came from one"))
        })
    }

    /// The value that is at this place.
    pub(crate) fn value_at(&self, place: Range<usize>) -> HeaderValue {
        HeaderValue::from_maybe_shared(self.0.slice(place)).expect("the value came from one")
    }

    /// Sets the fields in a table, where lines cannot be sent.
    pub fn write_to(&self, headers: &mut HeaderMap) {
        for (name, mut value) in self.fields() {
            // A known name is a constant; any other one would be allocated.
            let known = IDENTITY_FIELDS.iter().chain(&ORIGIN_FIELDS).find(|known| known.as_str() == name).cloned();
            let name =
                known.unwrap_or_else(|| HeaderName::from_bytes(name.as_bytes()).expect("the name came from one"));
            // It does not come again: HTTP/2 is not to keep it.
            value.set_sensitive(name == X_REQUEST_ID);
            headers.insert(name, value);
        }
    }
}

impl LineBuffer {
    /// The lines as they are sent.
    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Removes all lines.
    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }

    /// Appends a line. `value` is a valid field value.
    pub fn push(&mut self, name: &HeaderName, value: &[u8]) {
        for piece in [name.as_str().as_bytes(), SEPARATOR, value, LINE_END] {
            self.0.extend_from_slice(piece);
        }
    }

    /// Appends lines.
    pub fn append(&mut self, lines: &FieldLines) {
        self.0.extend_from_slice(&lines.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::identity::{X_ORG_ID, X_USER_ID};

    #[test]
    fn lines_are_those_of_their_fields() {
        let user = FieldLines::of(|lines| {
            lines.push(&X_USER_ID, b"a: b");
            lines.push(&X_ORG_ID, b"");
        });
        let lines = FieldLines::of(|lines| {
            lines.push(&X_REQUEST_ID, b"1");
            lines.append(&user);
            lines.push(&HeaderName::from_static("x-other"), "\u{e4}".as_bytes());
        });
        let text = "x-request-id: 1\r\nx-user-id: a: b\r\nx-org-id: \r\nx-other: \u{e4}\r\n";
        assert_eq!(str::from_utf8(lines.as_bytes()), Ok(text));
        let mut headers = HeaderMap::from_iter([(X_USER_ID, HeaderValue::from_static("forged"))]);
        headers.append(X_USER_ID, HeaderValue::from_static("forged"));
        lines.write_to(&mut headers);
        let written: Vec<_> = headers.iter().map(|(name, value)| (name.as_str(), value.as_bytes())).collect();
        let expected: Vec<_> = lines.fields().collect();
        assert_eq!(written.len(), expected.len());
        for (name, value) in expected {
            assert_eq!(headers.get_all(name).iter().collect::<Vec<_>>(), [&value], "{name}");
        }
        assert!(headers[X_REQUEST_ID].is_sensitive() && !headers[X_USER_ID].is_sensitive());
    }
}
