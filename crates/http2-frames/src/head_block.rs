//! Compressed heads (HPACK, RFC 7541), scanned without being decompressed.
//!
//! Of a field, only its name matters here, and for three of the pseudo-fields also the value. A name is given by its
//! place in the table of common fields, or in that of the connection's earlier fields, or as text. Of the latter table
//! this keeps three bits for each entry ([`Entries`]): what is in it was scanned when it was entered.

use super::FrameError;
use super::field::{Entries, Field};
use super::huffman::HashSearch;

/// Bytes of a text that are compared with the few that matter.
const TEXT: usize = 8;

/// First byte of a representation, and its parts.
const INDEXED: u8 = 0x80;
const ENTERED: u8 = 0x40;
const SIZE: u8 = 0x20;
const NEVER_INDEXED: u8 = 0x10;
/// Places in the table of common fields.
const AUTHORITY: u8 = 1;
const EXPIRES: u8 = 36;
const TRANSFER_ENCODING: u8 = 57;

/// Progress of the scan of a connection's heads.
#[derive(Debug)]
pub(super) struct HeadBlock {
    entries: Entries,
    step: Step,
    /// First byte of the current representation, and its place among the bytes that are scanned; none when it was in a
    /// piece before.
    first: u8,
    at: Option<usize>,
    /// Number that is being read: a place in a table, a length, or, of a text, the bytes that are left.
    number: usize,
    shift: u32,
    /// True of a text in Huffman code.
    is_coded: bool,
    /// Beginning of the text, and its whole length so far.
    text: [u8; TEXT],
    length: usize,
    /// Name of the current field; its value is not known yet.
    name: Field,
    hashes: HashSearch,
}

/// Part of a representation that comes next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Begin,
    Index,
    NameLength { begun: bool },
    Name,
    ValueLength { begun: bool },
    Value,
}

impl HeadBlock {
    pub(super) fn new() -> Self {
        Self {
            entries: Entries::default(),
            step: Step::Begin,
            first: 0,
            at: None,
            number: 0,
            shift: 0,
            is_coded: false,
            text: [0; TEXT],
            length: 0,
            name: Field::Other,
            hashes: HashSearch::default(),
        }
    }

    /// Scans the bytes of a head from `at` to `end`, up to the end of the next pseudo-field, which it returns; none
    /// when there is no other. A `#` in a path becomes a `>`, which no target may have.
    pub(super) fn next_pseudo(&mut self, bytes: &mut [u8], at: &mut usize, end: usize) -> Option<Field> {
        while *at < end {
            let field = match self.step {
                Step::Name | Step::Value => self.scan_text(&mut bytes[..end], at),
                _ => {
                    let byte = bytes[*at];
                    if self.step == Step::Begin {
                        (self.first, self.at) = (byte, Some(*at));
                    }
                    *at += 1;
                    self.scan_number(byte)
                }
            };
            if let Some(field) = field.filter(|field| *field != Field::Other) {
                return Some(field);
            }
        }
        None
    }

    /// Forgets where the current representation began: the bytes have gone to the library.
    pub(super) fn forget_position(&mut self) {
        self.at = None;
    }

    /// Makes the pseudo-field that was returned last one with which a head is malformed.
    ///
    /// - A field of the table becomes `transfer-encoding`, which no head may have (RFC 9113, section 8.2.2).
    /// - A field with a value gets another name, and the pseudo-field is missing. One that is entered into the table
    ///   gets `expires`, which is as long as `:scheme` and `:status`.
    ///
    /// # Errors
    /// The byte has gone to the library, or the representation is one that no known encoder chooses.
    pub(super) fn spoil(&self, bytes: &mut [u8]) -> Result<(), FrameError> {
        let first = self.at.and_then(|at| bytes.get_mut(at)).ok_or(FrameError::Malformed)?;
        *first = match self.first {
            // Of two bytes and more.
            0xff => return Err(FrameError::Malformed),
            INDEXED.. => INDEXED | TRANSFER_ENCODING,
            0x46..=0x48 => ENTERED | EXPIRES,
            0x06..=0x08 | 0x16..=0x18 => self.first & NEVER_INDEXED | AUTHORITY,
            _ => return Err(FrameError::Malformed),
        };
        Ok(())
    }

    /// Takes a byte of a number (RFC 7541, section 5.1). Returns the field that ends with it.
    fn scan_number(&mut self, byte: u8) -> Option<Field> {
        let prefix = match self.step {
            Step::Begin => Some(match byte {
                INDEXED.. => 0x7f,
                ENTERED.. => 0x3f,
                SIZE.. => 0x1f,
                _ => 0x0f,
            }),
            Step::NameLength { begun: false } | Step::ValueLength { begun: false } => {
                self.is_coded = byte & 0x80 != 0;
                Some(0x7f)
            }
            _ => None,
        };
        let is_whole = match prefix {
            Some(prefix) => {
                (self.number, self.shift) = (usize::from(byte & prefix), 0);
                byte & prefix != prefix
            }
            None => {
                // More bits than the library accepts: it ends the connection.
                let more = usize::from(byte & 0x7f).checked_shl(self.shift).unwrap_or(usize::MAX);
                self.number = self.number.saturating_add(more);
                self.shift = self.shift.saturating_add(7);
                byte & 0x80 == 0
            }
        };
        match (self.step, is_whole) {
            (Step::Begin, false) => self.step = Step::Index,
            (Step::NameLength { .. }, false) => self.step = Step::NameLength { begun: true },
            (Step::ValueLength { .. }, false) => self.step = Step::ValueLength { begun: true },
            (_, false) => {}
            (Step::Begin | Step::Index, true) => return self.end_index(),
            (Step::NameLength { .. }, true) => return self.begin_text(Step::Name),
            (Step::ValueLength { .. } | Step::Name | Step::Value, true) => return self.begin_text(Step::Value),
        }
        None
    }

    /// Ends the place in a table with which a representation begins. Returns the field when there is no more of it.
    fn end_index(&mut self) -> Option<Field> {
        match self.first {
            INDEXED.. => {
                self.step = Step::Begin;
                return Some(self.entries.field(self.number));
            }
            SIZE..ENTERED => self.step = Step::Begin,
            _ if self.number == 0 => self.step = Step::NameLength { begun: false },
            _ => {
                self.name = self.entries.field(self.number).without_value();
                self.step = Step::ValueLength { begun: false };
            }
        }
        None
    }

    /// Begins a text of `number` bytes. Returns the field when it is an empty value.
    fn begin_text(&mut self, step: Step) -> Option<Field> {
        (self.step, self.length, self.hashes) = (step, 0, HashSearch::default());
        if self.number == 0 { self.end_text() } else { None }
    }

    /// Takes bytes of a name or of a value. Returns the field that ends with them.
    fn scan_text(&mut self, bytes: &mut [u8], at: &mut usize) -> Option<Field> {
        let take = self.number.min(bytes.len() - *at);
        let piece = &mut bytes[*at..*at + take];
        match (self.step, self.name) {
            (Step::Value, Field::Other | Field::Pseudo) => {}
            (Step::Value, Field::Path) if self.is_coded => self.hashes.replace(piece),
            (Step::Value, Field::Path) => piece.iter_mut().filter(|byte| **byte == b'#').for_each(|byte| *byte = b'>'),
            _ => {
                let kept = self.length.min(TEXT)..(self.length + take).min(TEXT);
                let count = kept.len();
                self.text[kept].copy_from_slice(&piece[..count]);
            }
        }
        self.length += take;
        self.number -= take;
        *at += take;
        if self.number == 0 { self.end_text() } else { None }
    }

    /// Ends a name, or a value and with it the field, which it returns.
    fn end_text(&mut self) -> Option<Field> {
        let text = &self.text[..self.length.min(TEXT)];
        if self.step == Step::Name {
            self.name = if self.length > TEXT {
                Field::of_long_name(text, self.is_coded)
            } else {
                Field::of_name(text, self.is_coded)
            };
            self.step = Step::ValueLength { begun: false };
            return None;
        }
        let field = match self.name {
            Field::Scheme if self.length > TEXT => Field::OtherScheme,
            Field::Scheme => Field::of_scheme(text),
            Field::Status => Field::of_status(text, self.is_coded),
            name => name,
        };
        if self.first & ENTERED != 0 {
            self.entries.enter(field);
        }
        self.step = Step::Begin;
        Some(field)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::huffman::tests::encode;

    const FIELDS: [(&str, &str, Field); 12] = [
        (":path", "/a?b=c", Field::Path),
        (":path", "/a#b##", Field::Path),
        (":scheme", "http", Field::Scheme),
        (":scheme", "https", Field::Scheme),
        (":scheme", "ftp", Field::OtherScheme),
        (":scheme", "httpsecure", Field::OtherScheme),
        (":status", "200", Field::Status),
        (":status", "103", Field::Interim),
        (":status", "101", Field::Switch),
        (":method", "PATCH", Field::Pseudo),
        ("x-note", "#1", Field::Other),
        ("x-a-long-name-of-many-bytes", "", Field::Other),
    ];

    /// Representation of a field (RFC 7541, section 6).
    #[derive(Clone, Copy, Debug)]
    struct Choice {
        field: usize,
        /// It is entered into the table; or not; or never.
        first: u8,
        by_index: bool,
        coded: (bool, bool),
    }

    fn choice() -> impl Strategy<Value = Choice> {
        let first = prop_oneof![3 => Just(ENTERED), 1 => Just(0), 1 => Just(NEVER_INDEXED)];
        (0..FIELDS.len(), first, prop::bool::weighted(0.8), any::<(bool, bool)>())
            .prop_map(|(field, first, by_index, coded)| Choice { field, first, by_index, coded })
    }

    fn number(first: u8, prefix: u8, number: usize) -> Vec<u8> {
        let Some(mut rest) = number.checked_sub(usize::from(prefix)) else { return vec![first | number as u8] };
        let mut bytes = vec![first | prefix];
        while rest >= 128 {
            bytes.push((rest % 128) as u8 | 128);
            rest /= 128;
        }
        bytes.push(rest as u8);
        bytes
    }

    fn text(text: &str, is_coded: bool) -> Vec<u8> {
        let (first, bytes) = if is_coded { (0x80, encode(text)) } else { (0, text.into()) };
        [number(first, 0x7f, bytes.len()), bytes].concat()
    }

    /// Writes fields, with a table of entered ones that grows as far as places are looked up.
    fn write(choices: &[Choice], value_of: impl Fn(usize) -> String) -> Vec<u8> {
        let (mut table, mut bytes) = (Vec::<usize>::new(), vec![SIZE | 0x1f, 0xe1, 0x1f]);
        for choice in choices {
            let name = FIELDS[choice.field].0;
            let place = |wanted: &dyn Fn(usize) -> bool| {
                let age = table.iter().rev().take(MAX_PLACES).position(|entered| wanted(*entered));
                age.map(|age| COMMON + 1 + age)
            };
            if choice.by_index
                && let Some(whole) = place(&|entered| entered == choice.field)
            {
                bytes.extend(number(INDEXED, 0x7f, whole));
                continue;
            }
            let common = [(":path", 5), (":scheme", 6), (":status", 9), (":method", 2)];
            let common = common.iter().find(|(common, _)| *common == name).map(|(_, place)| *place);
            // Every other name that is in both tables is taken from that of the connection.
            let named = place(&|entered| FIELDS[entered].0 == name).filter(|_| choice.coded.0).or(common);
            let prefix = if choice.first == ENTERED { 0x3f } else { 0x0f };
            match named.filter(|_| choice.by_index) {
                Some(named) => bytes.extend(number(choice.first, prefix, named)),
                None => bytes.extend([vec![choice.first], text(name, choice.coded.0)].concat()),
            }
            bytes.extend(text(&value_of(choice.field), choice.coded.1));
            if choice.first == ENTERED {
                table.push(choice.field);
            }
        }
        bytes
    }

    const COMMON: usize = 61;
    const MAX_PLACES: usize = 128;

    proptest! {
        #[test]
        fn pseudo_fields_are_found_in_every_representation_and_any_pieces(
            choices in prop::collection::vec(choice(), 0..200),
            size in 1_usize..50,
        ) {
            let mut bytes = write(&choices, |field| FIELDS[field].1.to_owned());
            let mut head = HeadBlock::new();
            let mut found = Vec::new();
            for piece in bytes.chunks_mut(size) {
                let mut at = 0;
                let end = piece.len();
                while let Some(field) = head.next_pseudo(piece, &mut at, end) {
                    found.push(field);
                }
                prop_assert_eq!(at, end);
                head.forget_position();
            }
            let fields = choices.iter().map(|choice| FIELDS[choice.field].2);
            prop_assert_eq!(found, fields.filter(|field| *field != Field::Other).collect::<Vec<_>>());
            let harmless = |field: usize| match FIELDS[field] {
                (":path", value, _) => value.replace('#', ">"),
                (_, value, _) => value.to_owned(),
            };
            prop_assert_eq!(bytes, write(&choices, harmless), "only fragments are changed");
        }

        #[test]
        fn any_bytes_are_scanned_to_their_end(mut bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let mut head = HeadBlock::new();
            let mut at = 0;
            let end = bytes.len();
            while head.next_pseudo(&mut bytes, &mut at, end).is_some() {}
            prop_assert_eq!(at, end);
        }
    }

    #[test]
    fn spoiled_field_has_the_size_that_it_had() {
        let spoil = |bytes: &[u8]| {
            let mut head = HeadBlock::new();
            let mut bytes = bytes.to_vec();
            let mut at = 0;
            let end = bytes.len();
            while head.next_pseudo(&mut bytes, &mut at, end).is_some() && at < end {}
            head.spoil(&mut bytes).map(|()| bytes)
        };
        assert_eq!(":scheme".len(), "expires".len());
        assert_eq!(spoil(b"\x48\x03101").unwrap(), b"\x64\x03101");
        assert_eq!(spoil(b"\x48\x03101\xbe").unwrap(), b"\x48\x03101\xb9", "an entry");
        assert_eq!(spoil(b"\x06\x03ftp").unwrap(), b"\x01\x03ftp");
        assert_eq!(spoil(b"\x17\x03ftp").unwrap(), b"\x11\x03ftp");
        for unusual in [&b"\x40\x07:scheme\x03ftp"[..], b"\x00\x07:scheme\x03ftp"] {
            assert_eq!(spoil(unusual), Err(FrameError::Malformed));
        }
        let mut head = HeadBlock::new();
        let first = [0x48, 3, b'1'];
        let mut rest = *b"01";
        assert_eq!(head.next_pseudo(&mut first.clone(), &mut 0, 3), None);
        head.forget_position();
        assert_eq!(head.next_pseudo(&mut rest, &mut 0, 2), Some(Field::Switch));
        assert_eq!(head.spoil(&mut rest), Err(FrameError::Malformed), "its first byte has gone");
    }
}
