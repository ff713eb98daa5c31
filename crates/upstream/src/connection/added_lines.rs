//! Lines of fields that go into the head of a request behind those that the HTTP library writes.
//!
//! The library takes the fields of a head from a table. What the gateway adds to each head is in lines already
//! ([`domain::field_lines`]): they are written beside the library's bytes, in the same call to the socket, and nothing
//! of them is copied.
//!
//! ```text
//! the library:  GET /a HTTP/1.1␍␊host: …␍␊                     ␍␊body
//! the socket:   GET /a HTTP/1.1␍␊host: …␍␊ x-request-id: …␍␊… ␍␊body
//! ```

use std::io::{self, IoSlice};
use std::task::{Poll, ready};

use super::sent_head::HEAD_END;
use domain::field_lines::FieldLines;

/// Bytes of the empty line that ends a head.
const EMPTY_LINE: usize = 2;
/// Pieces that are given to the socket at once, while there are lines to write; of a body, the rest follows.
const MAX_PIECES: usize = 8;

/// Lines that are to be written into the head of the current request.
///
/// - The library offers a head to the socket in one piece, and offers again what was not taken.
/// - It is told of its own bytes only.
#[derive(Debug)]
pub(crate) struct AddedLines {
    lines: FieldLines,
    /// Bytes of them that the socket has taken.
    written: usize,
    /// Bytes of the library's before them that the socket has not taken; none before the head was offered.
    before: Option<usize>,
}

impl AddedLines {
    pub(crate) fn new(lines: FieldLines) -> Self {
        Self { lines, written: 0, before: None }
    }

    /// The lines, of a request of which the library has offered nothing.
    pub(crate) fn into_unsent(self) -> Option<FieldLines> {
        self.before.is_none().then_some(self.lines)
    }

    /// Returns whether all lines were written.
    pub(crate) fn is_done(&self) -> bool {
        self.written == self.lines.as_bytes().len()
    }

    /// The head that is offered for the first time, in its parts: before the lines, and the lines; none when it was
    /// offered before.
    pub(crate) fn begin<'a>(&'a mut self, offered: &'a [IoSlice<'_>]) -> io::Result<Option<[&'a [u8]; 2]>> {
        if self.before.is_some() {
            return Ok(None);
        }
        let head: &[u8] = offered.first().map_or(&[], |piece| piece);
        let end =
            find_end(head).ok_or_else(|| io::Error::other("the head of a request was not offered in one piece"))?;
        let before = end + HEAD_END.len() - EMPTY_LINE;
        self.before = Some(before);
        Ok(Some([&head[..before], self.lines.as_bytes()]))
    }

    /// Writes what is offered, with the lines in their place. Returns how many of the offered bytes were taken: none
    /// only when the socket takes nothing. To be called behind [`Self::begin`], until it [is done](Self::is_done).
    pub(crate) fn poll_write(
        &mut self,
        offered: &[IoSlice<'_>],
        mut write: impl FnMut(&[IoSlice<'_>]) -> Poll<io::Result<usize>>,
    ) -> Poll<io::Result<usize>> {
        let mut taken = 0;
        // Without a byte of its own taken, the library would think that the socket was closed: also when the socket has
        // taken the rest of the lines alone.
        while taken == 0 {
            let Some(before) = self.before else { unreachable!("a head begins before it is written") };
            let head: &[u8] = offered.first().map_or(&[], |piece| piece);
            let parts = head.split_at_checked(before);
            let (first, rest) = parts.ok_or_else(|| io::Error::other("less of a head was offered than was left"))?;
            let lines = &self.lines.as_bytes()[self.written..];
            let mut pieces = [IoSlice::new(&[]); MAX_PIECES];
            let mut count = 0;
            let others = offered.iter().skip(1).map(|piece| &**piece);
            for piece in
                [first, lines, rest].into_iter().chain(others).filter(|piece| !piece.is_empty()).take(MAX_PIECES)
            {
                pieces[count] = IoSlice::new(piece);
                count += 1;
            }
            let written = ready!(write(&pieces[..count]))?;
            if written == 0 {
                break;
            }
            let of_lines = written.saturating_sub(before).min(lines.len());
            self.written += of_lines;
            self.before = Some(before.saturating_sub(written));
            taken = written - of_lines;
        }
        Poll::Ready(Ok(taken))
    }
}

/// Place of the end of a head in the piece that begins with it.
fn find_end(piece: &[u8]) -> Option<usize> {
    // Most heads have no body behind them.
    if piece.ends_with(HEAD_END) {
        return Some(piece.len() - HEAD_END.len());
    }
    memchr::memmem::find(piece, HEAD_END)
}

#[cfg(test)]
mod tests {
    use domain::identity::{X_REQUEST_ID, X_USER_ID};
    use proptest::prelude::*;

    use super::*;

    const HEAD: &[u8] = b"PUT /a HTTP/1.1\r\nhost: b\r\n\r\n";

    fn lines() -> FieldLines {
        FieldLines::of(|lines| {
            lines.push(&X_REQUEST_ID, b"1");
            lines.push(&X_USER_ID, b"u");
        })
    }

    /// Bytes that a socket gets which takes `sizes` at a time, of a head and a body in these pieces.
    fn received(pieces: &[&[u8]], sizes: &[usize]) -> Vec<u8> {
        let mut added = AddedLines::new(lines());
        let mut received = Vec::new();
        let mut sizes = sizes.iter().copied().cycle();
        let mut left: Vec<&[u8]> = pieces.to_vec();
        while left.iter().any(|piece| !piece.is_empty()) {
            left.retain(|piece| !piece.is_empty());
            let offered: Vec<IoSlice<'_>> = left.iter().map(|piece| IoSlice::new(piece)).collect();
            let mut write = |pieces: &[IoSlice<'_>]| {
                let size = sizes.next().unwrap();
                if size == 0 {
                    return Poll::Pending;
                }
                let all: Vec<u8> = pieces.iter().flat_map(|piece| piece.iter().copied()).take(size).collect();
                received.extend_from_slice(&all);
                Poll::Ready(Ok(all.len()))
            };
            let taken = if added.is_done() {
                write(&offered)
            } else {
                added.begin(&offered).unwrap();
                added.poll_write(&offered, write)
            };
            let Poll::Ready(taken) = taken else { continue };
            let mut taken = taken.unwrap();
            assert!(taken > 0, "the library would think that the socket was closed");
            for piece in &mut left {
                let of_piece = taken.min(piece.len());
                *piece = &piece[of_piece..];
                taken -= of_piece;
            }
        }
        assert!(added.is_done());
        received
    }

    proptest! {
        #[test]
        fn head_is_whole_whatever_the_socket_takes_at_a_time(
            sizes in proptest::collection::vec(0..50_usize, 0..9),
            body in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..20), 0..12),
            in_one_piece: bool,
        ) {
            let sizes: Vec<usize> = sizes.into_iter().chain([7]).collect();
            let mut expected = HEAD[..HEAD.len() - 2].to_vec();
            expected.extend_from_slice(lines().as_bytes());
            expected.extend_from_slice(b"\r\n");
            expected.extend(body.concat());
            let first = if in_one_piece { [HEAD, &body.concat()].concat() } else { HEAD.to_vec() };
            let rest = if in_one_piece { &[][..] } else { &body };
            let pieces: Vec<&[u8]> = std::iter::once(&first[..]).chain(rest.iter().map(Vec::as_slice)).collect();
            prop_assert_eq!(received(&pieces, &sizes), expected);
        }
    }

    #[test]
    fn part_of_a_head_is_an_error_and_lines_of_an_unsent_one_are_given_back() {
        let mut added = AddedLines::new(lines());
        assert!(added.begin(&[IoSlice::new(&HEAD[..20])]).is_err());
        assert_eq!(AddedLines::new(lines()).into_unsent(), Some(lines()));
        let offered = [IoSlice::new(HEAD)];
        assert!(added.begin(&offered).unwrap().is_some());
        assert!(added.begin(&offered).unwrap().is_none());
        assert_eq!(added.into_unsent(), None);
    }
}
