//! The body of a response that says the cost of its request: a JSON document, or a stream of events with JSON in their
//! data (the WHATWG's HTML standard, section 9.2), of which the last one that has the member counts.

use http::HeaderMap;
use http::header::{CONTENT_ENCODING, CONTENT_TYPE};
use memchr::{memchr2, memmem};
use serde_json::Value;

use crate::admission::CostMember;

/// Bytes of a document, or of one line of a stream, that are read. Longer ones say nothing.
const MAX_LENGTH: usize = 256 << 10;

/// The body of a response, as far as it has come.
pub(super) struct MeteredBody {
    member: CostMember,
    is_stream: bool,
    /// The document, or the line of the stream that has not ended.
    pending: Vec<u8>,
    is_too_long: bool,
    /// The number of the last event that has one.
    found: Option<String>,
}

impl MeteredBody {
    /// Prepares to read the body of a response with this head; `None` if it is neither JSON nor a stream of events, or
    /// is compressed.
    pub(super) fn of(head: &HeaderMap, member: &CostMember) -> Option<Self> {
        let content_type = head.get(CONTENT_TYPE)?.to_str().ok()?;
        let essence = content_type.split(';').next().unwrap_or_default().trim();
        let is_stream = essence.eq_ignore_ascii_case("text/event-stream");
        if head.contains_key(CONTENT_ENCODING) || !(is_stream || essence.eq_ignore_ascii_case("application/json")) {
            return None;
        }
        Some(Self { member: member.clone(), is_stream, pending: Vec::new(), is_too_long: false, found: None })
    }

    /// Reads the next piece.
    pub(super) fn read(&mut self, mut data: &[u8]) {
        if !self.is_stream {
            return self.append(data);
        }
        while let Some(end) = memchr2(b'\n', b'\r', data) {
            if self.pending.is_empty() && !self.is_too_long {
                self.read_line(&data[..end]);
            } else {
                self.append(&data[..end]);
                let line = std::mem::take(&mut self.pending);
                self.read_line(&line);
            }
            self.is_too_long = false;
            data = &data[end + 1..];
        }
        self.append(data);
    }

    /// The number that a whole body says.
    pub(super) fn finish(&self) -> Option<String> {
        if self.is_stream { self.found.clone() } else { self.number_of(&self.pending) }
    }

    fn append(&mut self, data: &[u8]) {
        self.is_too_long |= self.pending.len() + data.len() > MAX_LENGTH;
        if self.is_too_long {
            self.pending = Vec::new();
        } else {
            self.pending.extend_from_slice(data);
        }
    }

    fn read_line(&mut self, line: &[u8]) {
        let number = line.strip_prefix(b"data:").and_then(|data| self.number_of(data));
        self.found = number.or_else(|| self.found.take());
    }

    /// The member of a JSON text. Most have none, and are not parsed.
    fn number_of(&self, text: &[u8]) -> Option<String> {
        memmem::find(text, self.member.last.as_bytes())?;
        let document: Value = serde_json::from_slice(text).ok()?;
        document.pointer(&self.member.pointer)?.as_number().map(ToString::to_string)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn number(content_type: &str, pieces: &[&[u8]]) -> Option<String> {
        let head = HeaderMap::from_iter([(CONTENT_TYPE, content_type.parse().unwrap())]);
        let mut body = MeteredBody::of(&head, &"usage.cost".parse().unwrap())?;
        pieces.iter().for_each(|piece| body.read(piece));
        body.finish()
    }

    #[test]
    fn document_says_its_number() {
        for (text, found) in [
            (&br#"{"usage":{"cost":1.35e-05,"total_tokens":30}}"#[..], Some("0.0000135")),
            (br#"{"usage":{"cost":12}}"#, Some("12")),
            (br#"{"usage":{"cost":"12"}}"#, None),
            (br#"{"usage":{"total_tokens":30}}"#, None),
            (br#"{"cost":12}"#, None),
            (br#"{"usage":{"cost":12}"#, None),
            (b"", None),
        ] {
            for at in 0..text.len() {
                let pieces = text.split_at(at);
                assert_eq!(number("application/json; charset=utf-8", &[pieces.0, pieces.1]).as_deref(), found);
            }
        }
    }

    #[test]
    fn last_event_with_the_member_counts_however_it_arrives() {
        let stream =
            b"event: chunk\ndata: {\"usage\":{\"cost\":1}}\n\ndata:{\"usage\":{\"cost\":4.2e-6}}\r\n\r\n: usage.cost\n\
            data: {\"usage\":{\"cost\":null}}\rdata: {\"text\":\"cost\"}\n\ndata: [DONE]\n\n";
        for at in 0..stream.len() {
            let pieces = stream.split_at(at);
            assert_eq!(number("text/event-stream", &[pieces.0, pieces.1]).as_deref(), Some("4.2e-6"), "{at}");
        }
        let bytes: Vec<&[u8]> = stream.chunks(1).collect();
        assert_eq!(number("Text/Event-Stream;charset=utf-8", &bytes).as_deref(), Some("4.2e-6"));
        assert_eq!(number("text/event-stream", &[b"data: {\"usage\":{\"cost\":1}}"]), None, "the line has not ended");
    }

    #[test]
    fn long_line_is_skipped_and_a_long_document_says_nothing() {
        let long = vec![b' '; MAX_LENGTH];
        let stream = [b"data: ", &long[..], b"{\"usage\":{\"cost\":9}}\ndata: {\"usage\":{\"cost\":2}}\n"].concat();
        let pieces: Vec<&[u8]> = stream.chunks(1000).collect();
        assert_eq!(number("text/event-stream", &pieces).as_deref(), Some("2"));
        assert_eq!(number("application/json", &[&long, b"{\"usage\":{\"cost\":9}}"]), None);
    }

    #[test]
    fn other_bodies_are_not_read() {
        assert_eq!(number("text/plain", &[b"{\"usage\":{\"cost\":9}}"]), None);
        let head = [(CONTENT_TYPE, "application/json"), (CONTENT_ENCODING, "gzip")];
        let head = HeaderMap::from_iter(head.map(|(name, value)| (name, value.parse().unwrap())));
        assert!(MeteredBody::of(&head, &"usage.cost".parse().unwrap()).is_none());
    }
}
