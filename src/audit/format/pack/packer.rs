//! Packing.

use rustc_hash::FxHashMap;

use super::numbers::{put, zigzag};
use super::{
    COLUMNS, ColumnState, FIRST, Id, KINDS, LINES, Number, RANDOM, RANDOMS, Reference, STREAMS, TEXTS, Texts, WHOLE,
    layout_of, number_after,
};
use crate::audit::format::{frame, id_text};

/// Fields of a line at most.
const MAX_FIELDS: usize = 24;
/// Uses before an outcome among which its own is sought: as many requests as are usually in flight.
const MAX_DISTANCE: usize = 1024;

/// Packs lines; the last one may be without its end.
pub(crate) fn pack(lines: &[u8]) -> Vec<u8> {
    let mut packer = Packer {
        streams: std::array::from_fn(|_| Vec::new()),
        columns: std::array::from_fn(|_| ColumnState::default()),
        dictionaries: std::array::from_fn(|_| FxHashMap::default()),
        last_texts: [None; COLUMNS],
        ids: Vec::new(),
        first: 0,
        next: None,
    };
    let mut rest = lines;
    while !rest.is_empty() {
        let end = memchr::memchr(b'\n', rest).map_or(rest.len(), |newline| newline + 1);
        let (line, after) = rest.split_at(end);
        packer.add(line);
        rest = after;
    }
    let mut out = Vec::with_capacity(packer.streams.iter().map(|stream| stream.len() + 4).sum());
    put(&mut out, packer.first);
    for stream in &packer.streams {
        put(&mut out, stream.len() as u64);
        out.extend_from_slice(stream);
    }
    out
}

struct Packer<'a> {
    streams: [Vec<u8>; STREAMS],
    columns: [ColumnState; COLUMNS],
    dictionaries: [FxHashMap<&'a [u8], u64>; COLUMNS],
    last_texts: [Option<&'a [u8]>; COLUMNS],
    /// The ids of uses.
    ids: Vec<&'a [u8]>,
    /// The number of the first line that is packed.
    first: u64,
    /// The number that the next line has.
    next: Option<u64>,
}

impl<'a> Packer<'a> {
    fn add(&mut self, line: &'a [u8]) {
        if self.add_packed(line).is_some() {
            return;
        }
        self.streams[KINDS].push(WHOLE);
        put(&mut self.streams[LINES], line.len() as u64);
        self.streams[LINES].extend_from_slice(line);
        self.next = number_after(line).or(self.next);
    }

    /// Packs a line; `None`, and nothing is changed, when it must stay whole.
    fn add_packed(&mut self, line: &'a [u8]) -> Option<()> {
        let (kind, layout, first_column) = layout_of(*line.first()?)?;
        let line = line.strip_suffix(b"\n")?;
        let mut ends = [0; MAX_FIELDS];
        // The last two fields are those of the frame.
        let count = split(line, &mut ends)?.checked_sub(2)?;
        let n = parse(&line[ends[count] + 1..ends[count + 1]])?;
        let next = n.checked_add(1)?;
        let is_next = self.next.is_none_or(|next| next == n);
        (is_next && count == layout.fields()).then_some(())?;
        let (covered, checksum) = line.split_at(ends[count + 1]);
        (checksum == frame::compact_tail(crc32fast::hash(covered))).then_some(())?;
        let id = match layout.columns[0] {
            Id => id_text::decode(&line[ends[0] + 1..ends[1]])?,
            _ => 0,
        };
        if self.next.is_none() {
            self.first = n;
        }
        self.next = Some(next);
        self.streams[KINDS].push(kind);
        let mut field = 0;
        for (i, column) in layout.columns.iter().enumerate() {
            let value = &line[ends[field] + 1..ends[field + column.fields()]];
            match column {
                Id => self.add_id(first_column + i, value, id),
                Reference => self.add_reference(first_column + i, value),
                Number => self.add_number(first_column + i, value),
                Texts(_) => self.add_text(first_column + i, value),
            }
            field += column.fields();
        }
        Some(())
    }

    fn add_id(&mut self, at: usize, value: &'a [u8], id: u128) {
        let time = (id >> 80) as u64;
        let state = &mut self.columns[at];
        put(&mut self.streams[FIRST + at], zigzag(time.wrapping_sub(state.number)));
        state.number = time;
        self.streams[RANDOMS].extend_from_slice(&id.to_be_bytes()[16 - RANDOM..]);
        self.ids.push(value);
    }

    /// The number of uses back to the one with this id; 0 and the text when it is not among them.
    fn add_reference(&mut self, at: usize, value: &'a [u8]) {
        let place = self.ids.iter().rev().take(MAX_DISTANCE).position(|id| *id == value);
        put(&mut self.streams[FIRST + at], place.map_or(0, |place| place as u64 + 1));
        if place.is_none() {
            self.put_text(value);
        }
    }

    /// The difference to the number before, plus 1; 0 and a text for what is no number.
    fn add_number(&mut self, at: usize, value: &'a [u8]) {
        let state = &mut self.columns[at];
        let difference = parse(value).map(|number| (number, zigzag(number.wrapping_sub(state.number))));
        match difference.filter(|(_, difference)| *difference < u64::MAX) {
            Some((number, difference)) => {
                state.number = number;
                put(&mut self.streams[FIRST + at], difference + 1);
            }
            None => {
                put(&mut self.streams[FIRST + at], 0);
                self.put_text(value);
            }
        }
    }

    /// 0 for the text before, 1 and the text for a new one, 2 and more for a place in the dictionary.
    fn add_text(&mut self, at: usize, value: &'a [u8]) {
        // Most texts are those of the line before: comparing costs less than hashing.
        if self.last_texts[at] == Some(value) {
            return self.streams[FIRST + at].push(0);
        }
        self.last_texts[at] = Some(value);
        let dictionary = &mut self.dictionaries[at];
        let new = dictionary.len() as u64;
        let place = *dictionary.entry(value).or_insert(new);
        let token = if place == new { 1 } else { place + 2 };
        put(&mut self.streams[FIRST + at], token);
        if place == new {
            self.put_text(value);
        }
    }

    fn put_text(&mut self, value: &[u8]) {
        put(&mut self.streams[TEXTS], value.len() as u64);
        self.streams[TEXTS].extend_from_slice(value);
    }
}

/// Notes where the fields after the first one begin and end, each behind a tab. Returns their number.
fn split(line: &[u8], ends: &mut [usize; MAX_FIELDS]) -> Option<usize> {
    let mut count = 0;
    // Eight bytes at a time: fields are so short that a search for each tab costs twice as much.
    let (chunks, rest) = line.as_chunks::<8>();
    let mut last = [0; 8];
    last[..rest.len()].copy_from_slice(rest);
    for (i, chunk) in chunks.iter().chain([&last]).enumerate() {
        let mut tabs = tabs_in(u64::from_le_bytes(*chunk));
        while tabs != 0 {
            *ends.get_mut(count)? = i * 8 + tabs.trailing_zeros() as usize / 8;
            count += 1;
            tabs &= tabs - 1;
        }
    }
    *ends.get_mut(count)? = line.len();
    // The first field is one letter.
    (ends[0] == 1).then_some(count)
}

/// The highest bit of each byte that is a tab.
fn tabs_in(bytes: u64) -> u64 {
    const LOW: u64 = 0x7f7f_7f7f_7f7f_7f7f;
    const TABS: u64 = 0x0909_0909_0909_0909;
    // A byte of `other` is zero where there is a tab. The sum has no carry from one byte to the next.
    let other = bytes ^ TABS;
    !(((other & LOW) + LOW) | other | LOW)
}

/// Parses a number that has the digits it would be written with.
fn parse(digits: &[u8]) -> Option<u64> {
    let is_plain = (1..=19).contains(&digits.len()) && (digits[0] != b'0' || digits.len() == 1);
    is_plain.then_some(())?;
    digits.iter().try_fold(0, |number, digit| digit.is_ascii_digit().then(|| number * 10 + u64::from(digit - b'0')))
}
