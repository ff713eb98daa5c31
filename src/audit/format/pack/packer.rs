//! Packing.

use rustc_hash::FxHashMap;

use super::numbers::{self, put, zigzag};
use super::{
    COLUMNS, ColumnState, FIRST, KINDS, LAYOUTS, LINES, Layout, RANDOM, RANDOMS, STREAMS, TEXTS, WHOLE, layout_of,
    number_after,
};
use crate::audit::format::{frame, id_text};

/// Numbers and texts of a line at most, each.
const MAX_VALUES: usize = 6;
/// Uses before an outcome among which its own is sought: as many requests as are usually in flight.
const MAX_DISTANCE: usize = 1024;

/// Packs lines; the last one may be without its end.
pub(crate) fn pack(lines: &[u8]) -> Vec<u8> {
    let mut packer = Packer {
        streams: std::array::from_fn(|_| Vec::new()),
        columns: std::array::from_fn(|_| ColumnState::default()),
        dictionaries: std::array::from_fn(|_| FxHashMap::default()),
        last_texts: [&[]; COLUMNS],
        all_texts: [&[]; LAYOUTS.len()],
        ids: Vec::new(),
        values: Values::default(),
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
    last_texts: [&'a [u8]; COLUMNS],
    /// All texts of the last line of each kind.
    all_texts: [&'a [u8]; LAYOUTS.len()],
    /// The ids of uses.
    ids: Vec<IdText<'a>>,
    /// The line that is being packed.
    values: Values<'a>,
    /// The number of the first line that is packed.
    first: u64,
    /// The number that the next line has.
    next: Option<u64>,
}

/// The values of a line, read before any of them is packed.
#[derive(Default)]
struct Values<'a> {
    id_text: &'a [u8],
    /// The id of a use.
    id: u128,
    numbers: [NumberField<'a>; MAX_VALUES],
    /// The texts; `None` for that of the line before.
    texts: [Option<&'a [u8]>; MAX_VALUES],
    /// All texts together.
    all_texts: &'a [u8],
    /// The number of the line.
    n: u64,
}

/// The field of a number.
#[derive(Clone, Copy, Default)]
struct NumberField<'a> {
    number: u64,
    /// The field when it is no number, or not as the number would be written.
    other: Option<&'a [u8]>,
}

/// The text of an id, and its last bytes, which are random: comparing them first finds an id among many.
struct IdText<'a> {
    tail: u64,
    text: &'a [u8],
}

impl<'a> IdText<'a> {
    fn new(text: &'a [u8]) -> Self {
        let tail = text.last_chunk().map_or(0, |tail| u64::from_le_bytes(*tail));
        Self { tail, text }
    }
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
        self.read_line(line, (kind, layout, first_column))?;
        if self.next.is_none() {
            self.first = self.values.n;
        }
        self.next = Some(self.values.n + 1);
        self.all_texts[usize::from(kind)] = self.values.all_texts;
        self.streams[KINDS].push(kind);
        if layout.is_reference {
            self.add_reference(first_column)
        } else {
            self.add_id(first_column)
        }
        let texts = first_column + 1 + layout.numbers;
        let numbers_after = texts + layout.texts.len();
        for i in 0..layout.numbers {
            self.add_number(first_column + 1 + i, self.values.numbers[i]);
        }
        for i in 0..layout.texts.len() {
            match self.values.texts[i] {
                None => self.streams[FIRST + texts + i].push(0),
                Some(text) => self.add_text(texts + i, text),
            }
        }
        for i in 0..layout.numbers_after {
            self.add_number(numbers_after + i, self.values.numbers[layout.numbers + i]);
        }
        Some(())
    }

    /// Reads the values of a line; `None` when it must stay whole.
    fn read_line(&mut self, line: &'a [u8], (kind, layout, first_column): (u8, &Layout, usize)) -> Option<()> {
        let (values, next) = (&mut self.values, self.next);
        let mut fields = Fields { rest: &line[1..] };
        values.id_text = fields.id()?;
        if !layout.is_reference {
            values.id = id_text::decode(values.id_text)?;
        }
        for number in &mut values.numbers[..layout.numbers] {
            *number = fields.number()?;
        }
        let from = fields.rest;
        // Most texts are those of the line before: comparing them costs less than searching their ends.
        if fields.skip(self.all_texts[usize::from(kind)]) {
            values.texts = [None; MAX_VALUES];
        } else {
            let last = &self.last_texts[first_column + 1 + layout.numbers..];
            for ((text, count), last) in values.texts.iter_mut().zip(layout.texts).zip(last) {
                *text = if fields.skip(last) { None } else { Some(fields.text(*count)?) };
            }
        }
        values.all_texts = &from[..from.len() - fields.rest.len()];
        for number in &mut values.numbers[layout.numbers..layout.numbers + layout.numbers_after] {
            *number = fields.number()?;
        }
        // The frame follows the last column, and nothing follows the frame.
        values.n = fields.line_number(next)?;
        let (covered, tail) = line.split_at(line.len() - fields.rest.len());
        (tail.strip_suffix(b"\n")? == frame::compact_tail(crc32fast::hash(covered))).then_some(())
    }

    fn add_id(&mut self, at: usize) {
        let id = self.values.id;
        let time = (id >> 80) as u64;
        let state = &mut self.columns[at];
        put(&mut self.streams[FIRST + at], zigzag(time.wrapping_sub(state.number)));
        state.number = time;
        self.streams[RANDOMS].extend_from_slice(&id.to_be_bytes()[16 - RANDOM..]);
        self.ids.push(IdText::new(self.values.id_text));
    }

    /// The number of uses back to the one with this id; 0 and the text when it is not among them.
    fn add_reference(&mut self, at: usize) {
        let sought = IdText::new(self.values.id_text);
        let is_it = |id: &IdText<'_>| id.tail == sought.tail && id.text == sought.text;
        let place = self.ids.iter().rev().take(MAX_DISTANCE).position(is_it);
        put(&mut self.streams[FIRST + at], place.map_or(0, |place| place as u64 + 1));
        if place.is_none() {
            self.put_text(self.values.id_text);
        }
    }

    /// The difference to the number before, plus 1; 0 and the text of what is no number.
    fn add_number(&mut self, at: usize, field: NumberField<'a>) {
        if let Some(other) = field.other {
            self.streams[FIRST + at].push(0);
            return self.put_text(other);
        }
        let state = &mut self.columns[at];
        // No difference is so large that 1 more would not be a number: the numbers have few digits.
        put(&mut self.streams[FIRST + at], zigzag(field.number.wrapping_sub(state.number)) + 1);
        state.number = field.number;
    }

    /// 1 and the text for a new one, 2 and more for a place in the dictionary. `text` has the tab before it.
    fn add_text(&mut self, at: usize, text: &'a [u8]) {
        self.last_texts[at] = text;
        let dictionary = &mut self.dictionaries[at];
        let new = dictionary.len() as u64;
        let place = *dictionary.entry(text).or_insert(new);
        let token = if place == new { 1 } else { place + 2 };
        put(&mut self.streams[FIRST + at], token);
        if place == new {
            self.put_text(&text[1..]);
        }
    }

    fn put_text(&mut self, text: &[u8]) {
        put(&mut self.streams[TEXTS], text.len() as u64);
        self.streams[TEXTS].extend_from_slice(text);
    }
}

/// The fields of a line that are not read yet, each behind a tab.
struct Fields<'a> {
    rest: &'a [u8],
}

impl<'a> Fields<'a> {
    /// An id, and a field behind it.
    #[inline]
    fn id(&mut self) -> Option<&'a [u8]> {
        let (field, rest) = self.rest.split_at_checked(1 + id_text::LENGTH)?;
        self.rest = rest;
        (field[0] == b'\t' && rest.first() == Some(&b'\t')).then(|| &field[1..])
    }

    /// The field of a number.
    #[inline]
    fn number(&mut self) -> Option<NumberField<'a>> {
        let digits = self.rest.strip_prefix(b"\t")?;
        let Some((number, rest)) = numbers::parse_field(digits) else {
            return Some(NumberField { number: 0, other: Some(&self.text(1)?[1..]) });
        };
        self.rest = rest;
        Some(NumberField { number, other: None })
    }

    /// The number of the line; `None` when it is not the next one.
    #[inline]
    fn line_number(&mut self, next: Option<u64>) -> Option<u64> {
        let Some(next) = next else {
            let first = self.number()?;
            return first.other.is_none().then_some(first.number);
        };
        // Writing the number that it must be costs less than reading the one that is there.
        let mut digits = itoa::Buffer::new();
        self.rest = self.rest.strip_prefix(b"\t")?.strip_prefix(digits.format(next).as_bytes())?;
        (next < u64::MAX).then_some(next)
    }

    /// Passes over these fields, with the tab before them, when they are there.
    #[inline]
    fn skip(&mut self, last: &[u8]) -> bool {
        match self.rest.strip_prefix(last) {
            Some(rest) if rest.first() == Some(&b'\t') && !last.is_empty() => {
                self.rest = rest;
                true
            }
            _ => false,
        }
    }

    /// A text of this many fields, with the tab before it.
    fn text(&mut self, fields: usize) -> Option<&'a [u8]> {
        let mut end = 0;
        for _ in 0..fields {
            end += 1 + memchr::memchr(b'\t', self.rest.get(end + 1..)?)?;
        }
        let (text, rest) = self.rest.split_at(end);
        self.rest = rest;
        text.starts_with(b"\t").then_some(text)
    }
}
