//! Torn writes: tells what a crash can leave behind the last good line of a segment from damage.
//!
//! - A killed process leaves a part of one batch: whole lines, which are good, and the beginning of one more.
//! - The loss of power leaves any of the sectors that were written since the last sync. Where one is missing, the file
//!   has zeros: allocated space reads as zeros, and lines have none. They reach from the end of a batch, or the
//!   beginning of a sector, to the end of a sector, or of the file.
//! - A test for free space leaves spaces.
//!
//! Everything else was written and has changed since: a whole line with a wrong checksum, or bytes that no line has.

/// Bytes that a disk writes as a whole at least.
const SECTOR: u64 = 512;
/// Beginnings of lines.
const BEGINNINGS: [&[u8]; 4] = [b"u\t", b"o\t", b"r\t", b"{\"e\":\""];
/// Bytes of a line that are compared with them.
const COMPARED: usize = 6;

/// The bytes behind the last good line of a segment, read in pieces.
#[derive(Debug)]
pub(crate) struct Tail {
    /// Offset of the next byte in the segment.
    at: u64,
    /// There are bytes that no crash leaves.
    is_damaged: bool,
    /// The zeros before `at` begin where a missing sector can begin.
    zeros: Option<bool>,
    /// The line before `at`.
    line: TailLine,
    /// Line feeds.
    pub(crate) lines: u64,
}

/// The beginning of a line up to the end of what was read.
#[derive(Debug, Default)]
struct TailLine {
    length: u64,
    start: Vec<u8>,
    has_zeros: bool,
    /// It has a control character that no line has.
    has_control: bool,
    is_blank: bool,
}

impl Tail {
    /// The tail of a segment whose last good line ends at this offset.
    pub(crate) fn new(at: u64) -> Self {
        Self { at, is_damaged: false, zeros: None, line: TailLine::new(), lines: 0 }
    }

    /// Adds the next bytes.
    pub(crate) fn push(&mut self, piece: &[u8]) {
        for byte in piece {
            match byte {
                0 => self.push_zero(),
                _ => self.push_text(*byte),
            }
            self.at += 1;
        }
    }

    fn push_zero(&mut self) {
        let begins_here = self.line.length == 0 || self.at.is_multiple_of(SECTOR);
        self.zeros.get_or_insert(begins_here);
        self.line.has_zeros = true;
        self.line.length += 1;
    }

    fn push_text(&mut self, byte: u8) {
        if let Some(begins_at_sector) = self.zeros.take() {
            self.is_damaged |= !(begins_at_sector && self.at.is_multiple_of(SECTOR));
        }
        if byte != b'\n' {
            return self.line.push(byte);
        }
        // A whole line was written as it is, unless sectors of it are missing.
        self.is_damaged |= !self.line.has_zeros || self.line.has_control;
        self.line = TailLine::new();
        self.lines += 1;
    }

    /// Bytes behind the last line feed.
    pub(crate) fn unfinished(&self) -> u64 {
        self.line.length
    }

    /// Returns whether a crash can have left these bytes; all that is lost with them was not synced then.
    pub(crate) fn is_torn(&self) -> bool {
        // Zeros may reach to the end of the file, wherever that is.
        !self.is_damaged && self.zeros != Some(false) && self.line.is_torn()
    }
}

impl TailLine {
    fn new() -> Self {
        Self { is_blank: true, ..Self::default() }
    }

    fn push(&mut self, byte: u8) {
        if self.start.len() < COMPARED {
            self.start.push(byte);
        }
        self.has_control |= byte < b' ' && byte != b'\t';
        self.is_blank &= byte == b' ';
        self.length += 1;
    }

    /// Returns whether this is the part of a line that was written.
    fn is_torn(&self) -> bool {
        let begins = |beginning: &[u8]| {
            let length = beginning.len().min(self.start.len());
            self.start[..length] == beginning[..length]
        };
        !self.has_control && (self.has_zeros || self.is_blank || BEGINNINGS.into_iter().any(begins))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINE: &[u8] = b"o\tAAAAAAAAAAAAAAAAAAAAAA\taborted\t41\t00000000\n";

    /// Classifies these bytes behind offset 1000, in pieces of every size.
    fn is_torn(bytes: &[u8]) -> bool {
        let of = |size| {
            let mut tail = Tail::new(1000);
            bytes.chunks(size).for_each(|piece| tail.push(piece));
            tail.is_torn()
        };
        let whole = of(usize::MAX);
        assert!((1..20).all(|size| of(size) == whole), "the pieces do not matter");
        whole
    }

    fn join(parts: &[&[u8]]) -> Vec<u8> {
        parts.concat()
    }

    #[test]
    fn torn_write_is_the_beginning_of_a_line() {
        for length in 0..LINE.len() {
            assert!(is_torn(&LINE[..length]), "{length}");
        }
        for start in ["u\t", "r\tAZ", "{", "{\"e\":\"head", "{\"e\":\"header\",\"segment\":2}", "    "] {
            assert!(is_torn(start.as_bytes()), "{start:?}");
        }
        for start in ["x", "{\"a", "o AZ", "o\tAZ\r", "o\tAZ\u{b}", " x"] {
            assert!(!is_torn(start.as_bytes()), "{start:?}");
        }
    }

    #[test]
    fn whole_line_is_damaged() {
        assert!(!is_torn(LINE));
        assert!(!is_torn(b"\n"));
        assert!(!is_torn(&join(&[LINE, b"u\tAZ"])));
    }

    #[test]
    fn missing_sectors_are_zeros_between_their_bounds() {
        assert!(is_torn(&[0; 5000]), "allocated space");
        assert!(is_torn(&join(&[&[0; 24], &LINE[3..]])), "up to 1024");
        assert!(is_torn(&join(&[&LINE[..24], &[0; 512], &LINE[9..]])), "from 1024 to 1536");
        assert!(is_torn(&join(&[&LINE[..24], &[0; 1024 + 7]])), "from 1024 to the end of the file");
        assert!(!is_torn(&join(&[&[0; 23], &LINE[3..]])), "up to 1023");
        assert!(!is_torn(&join(&[&LINE[..23], &[0; 513], &LINE[9..]])), "from 1023");
        assert!(!is_torn(&join(&[&LINE[..20], &[0], &LINE[21..]])), "a byte of a line");
        assert!(!is_torn(&join(&[&LINE[..23], &[0; 900]])), "the rest of the file, from inside of a sector");
    }
}
