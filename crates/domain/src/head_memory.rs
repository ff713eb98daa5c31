//! Memory of what is made for the head of one request: values of fields, and lines of fields. Much of it shares one
//! allocation.

use std::cell::RefCell;

use bytes::{Bytes, BytesMut};
use http::HeaderValue;

use crate::field_lines::{FieldLines, LineBuffer};

/// Bytes that are allocated at once: what some ten requests need. They are free again when the last piece of them is
/// gone, which is when the head that it is in was written.
const BLOCK: usize = 4096;

/// Memory of one worker.
#[derive(Debug, Default)]
pub struct HeadMemory {
    block: RefCell<BytesMut>,
    /// Lines of the current request.
    lines: RefCell<LineBuffer>,
}

impl HeadMemory {
    /// A value of these bytes. It does not come again: HTTP/2 would keep it in the table of the connection's fields
    /// otherwise, compare the next ones with it, and evict those that do come again (RFC 7541, section 6.2.3).
    ///
    /// # Panics
    /// If the text is no field value.
    pub fn value(&self, text: &[u8]) -> HeaderValue {
        let mut value = HeaderValue::from_maybe_shared(self.copy(text)).expect("visible ASCII was made for a field");
        value.set_sensitive(true);
        value
    }

    /// The lines that `write` writes.
    pub fn lines(&self, write: impl FnOnce(&mut LineBuffer)) -> FieldLines {
        let mut lines = self.lines.borrow_mut();
        lines.clear();
        write(&mut lines);
        FieldLines::shared(self.copy(lines.as_bytes()))
    }

    fn copy(&self, bytes: &[u8]) -> Bytes {
        let mut block = self.block.borrow_mut();
        if block.capacity() < bytes.len() {
            block.reserve(BLOCK.max(bytes.len()));
        }
        block.extend_from_slice(bytes);
        block.split().freeze()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::identity::X_REQUEST_ID;

    #[test]
    fn pieces_keep_their_text_whatever_comes_behind_them() {
        let memory = HeadMemory::default();
        let text = |number: usize| format!("{number}{}", "x".repeat(number % 700));
        let piece = |number| {
            let value = memory.value(text(number).as_bytes());
            let lines = memory.lines(|lines| lines.push(&X_REQUEST_ID, text(number).as_bytes()));
            (value, lines)
        };
        let kept: Vec<_> = (0..700).map(piece).collect();
        for (number, (value, lines)) in kept.iter().enumerate() {
            assert!(value == &text(number) && value.is_sensitive());
            assert_eq!(lines.as_bytes(), format!("x-request-id: {}\r\n", text(number)).as_bytes());
        }
        assert_eq!(memory.value(&[b'y'; 2 * BLOCK]).len(), 2 * BLOCK);
    }
}
