//! Packing.

use rustc_hash::FxHashMap;

use super::fields::{Fields, NextNumber, NumberField, NumberText};
use super::numbers::{put, zigzag};
use super::{
    COLUMNS, ColumnState, FIRST, KINDS, LAYOUTS, LINES, Layout, Packed, RANDOM, RANDOMS, STREAMS, TEXTS, TRACED, WHOLE,
    layout_of, number_after,
};
use crate::audit::format::version::VERSION;
use crate::audit::format::{frame, id_text};

/// Numbers and texts of a line at most, each.
const MAX_VALUES: usize = 6;
/// Uses before an outcome among which its own is sought: as many requests as are usually in flight.
const MAX_DISTANCE: usize = 1024;

/// Packs lines; the last one may be without its end.
pub(crate) fn pack(lines: &[u8]) -> Packed {
    let mut packer = Packer {
        streams: std::array::from_fn(|_| Vec::new()),
        columns: std::array::from_fn(|_| ColumnState::default()),
        dictionaries: std::array::from_fn(|_| FxHashMap::default()),
        last_numbers: [NumberText::NONE; COLUMNS],
        last_texts: [&[]; COLUMNS],
        all_texts: [&[]; LAYOUTS.len()],
        ids: Vec::new(),
        values: Values::default(),
        crc: crc32fast::Hasher::new(),
        first: 0,
        next: None,
    };
    let mut rest = lines;
    while !rest.is_empty() {
        rest = packer.add(rest);
    }
    let mut bytes = Vec::with_capacity(packer.streams.iter().map(|stream| stream.len() + 4).sum());
    bytes.push(VERSION);
    put(&mut bytes, packer.first);
    let mut random = 0..0;
    for (number, stream) in packer.streams.iter().enumerate() {
        put(&mut bytes, stream.len() as u64);
        if number == RANDOMS {
            random = bytes.len()..bytes.len() + stream.len();
        }
        bytes.extend_from_slice(stream);
    }
    Packed { bytes, random }
}

struct Packer<'a> {
    streams: [Vec<u8>; STREAMS],
    columns: [ColumnState; COLUMNS],
    dictionaries: [FxHashMap<&'a [u8], u64>; COLUMNS],
    last_numbers: [NumberText; COLUMNS],
    last_texts: [&'a [u8]; COLUMNS],
    /// All texts of the last line of each kind.
    all_texts: [&'a [u8]; LAYOUTS.len()],
    /// The ids of uses.
    ids: Vec<IdText<'a>>,
    /// The line that is being packed.
    values: Values<'a>,
    /// The checksum of nothing: a new one looks for the processor's features each time.
    crc: crc32fast::Hasher,
    /// The number of the first packed line, if no whole line before it has one; else 0.
    first: u64,
    /// The number that the next line has.
    next: Option<NextNumber>,
}

/// The values of a line, read before any of them is packed.
#[derive(Default)]
struct Values<'a> {
    id_text: &'a [u8],
    /// The id of a use.
    id: u128,
    /// The number of uses back to the one with the id; 0 when it is not among them.
    distance: u64,
    numbers: [NumberField<'a>; MAX_VALUES],
    /// The texts; `None` for that of the line before.
    texts: [Option<&'a [u8]>; MAX_VALUES],
    /// All texts together.
    all_texts: &'a [u8],
    /// The id of the trace.
    trace: Option<u128>,
    /// The number of the line.
    n: u64,
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
    /// Adds the first of these lines, and returns those behind it.
    fn add(&mut self, lines: &'a [u8]) -> &'a [u8] {
        if let Some(rest) = self.add_packed(lines) {
            return rest;
        }
        let end = memchr::memchr(b'\n', lines).map_or(lines.len(), |newline| newline + 1);
        let (line, rest) = lines.split_at(end);
        self.streams[KINDS].push(WHOLE);
        put(&mut self.streams[LINES], line.len() as u64);
        self.streams[LINES].extend_from_slice(line);
        if let Some(next) = number_after(line) {
            self.next = Some(NextNumber::new(next));
        }
        rest
    }

    /// Packs the first of these lines, and returns those behind it; `None`, and nothing is changed,
    /// when it must stay whole.
    fn add_packed(&mut self, lines: &'a [u8]) -> Option<&'a [u8]> {
        let (kind, layout, first_column) = layout_of(*lines.first()?)?;
        let rest = self.read_line(lines, (kind, layout, first_column))?;
        match &mut self.next {
            Some(next) => next.increment(),
            // No line before this one has a number, so its own is stored. The numbers of later lines follow from it.
            None => {
                self.first = self.values.n;
                self.next = Some(NextNumber::new(self.first + 1));
            }
        }
        self.all_texts[usize::from(kind)] = self.values.all_texts;
        self.streams[KINDS].push(if self.values.trace.is_some() { TRACED + kind } else { kind });
        if layout.is_reference {
            self.add_reference(first_column)
        } else {
            self.add_id(first_column)
        }
        let texts = first_column + 1 + layout.numbers.len();
        let numbers_after = texts + layout.texts.len();
        for i in 0..layout.numbers.len() {
            self.add_number(first_column + 1 + i, self.values.numbers[i]);
        }
        for i in 0..layout.texts.len() {
            match self.values.texts[i] {
                None => self.streams[FIRST + texts + i].push(0),
                Some(text) => self.add_text(texts + i, text),
            }
        }
        for i in 0..layout.numbers_after.len() {
            self.add_number(numbers_after + i, self.values.numbers[layout.numbers.len() + i]);
        }
        if let Some(trace) = self.values.trace {
            self.streams[RANDOMS].extend_from_slice(&trace.to_be_bytes());
        }
        Some(rest)
    }

    /// Reads the values of the first of these lines, and returns those behind it; `None` when it must stay whole.
    fn read_line(&mut self, lines: &'a [u8], (kind, layout, first_column): (u8, &Layout, usize)) -> Option<&'a [u8]> {
        let values = &mut self.values;
        let mut fields = Fields { rest: &lines[1..] };
        values.id_text = fields.id()?;
        if layout.is_reference {
            values.distance = distance(&self.ids, values.id_text);
        } else {
            values.id = id_text::decode(values.id_text)?;
        }
        let (numbers, numbers_after) = values.numbers.split_at_mut(layout.numbers.len());
        let texts = first_column + 1 + layout.numbers.len();
        for (number, last) in numbers.iter_mut().zip(&self.last_numbers[first_column + 1..]) {
            *number = fields.number(*last)?;
        }
        let from = fields.rest;
        // Most texts are those of the line before: comparing them costs less than searching their ends.
        if fields.skip(self.all_texts[usize::from(kind)]) {
            values.texts = [None; MAX_VALUES];
        } else {
            let last = &self.last_texts[texts..];
            for ((text, count), last) in values.texts.iter_mut().zip(layout.texts).zip(last) {
                *text = if fields.skip(last) { None } else { Some(fields.text(*count)?) };
            }
        }
        values.all_texts = &from[..from.len() - fields.rest.len()];
        let last = &self.last_numbers[texts + layout.texts.len()..];
        for (number, last) in numbers_after[..layout.numbers_after.len()].iter_mut().zip(last) {
            *number = fields.number(*last)?;
        }
        values.trace = if layout.is_reference { None } else { fields.trace() };
        // The frame follows the last field, and the next line follows the frame.
        values.n = fields.line_number(self.next.as_ref())?;
        let (covered, rest) = lines.split_at(lines.len() - fields.rest.len());
        let mut crc = self.crc.clone();
        crc.update(covered);
        rest.strip_prefix(&frame::compact_tail(crc.finalize()))?.strip_prefix(b"\n")
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
        put(&mut self.streams[FIRST + at], self.values.distance);
        if self.values.distance == 0 {
            self.put_text(self.values.id_text);
        }
    }

    /// The difference to the number before, plus 1; 0 and the text of what is no number.
    fn add_number(&mut self, at: usize, field: NumberField<'a>) {
        match field {
            NumberField::Same => self.streams[FIRST + at].push(1),
            NumberField::Number(number, text) => {
                let state = &mut self.columns[at];
                // No difference is so large that 1 more would not be a number: the numbers have few digits.
                put(&mut self.streams[FIRST + at], zigzag(number.wrapping_sub(state.number)) + 1);
                state.number = number;
                self.last_numbers[at] = text;
            }
            NumberField::Other(other) => {
                self.streams[FIRST + at].push(0);
                self.put_text(other);
            }
        }
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

/// The number of uses back to the one with this id; 0 when it is not among them.
fn distance(ids: &[IdText<'_>], id_text: &[u8]) -> u64 {
    let sought = IdText::new(id_text);
    let is_it = |id: &IdText<'_>| id.tail == sought.tail && id.text == sought.text;
    ids.iter().rev().take(MAX_DISTANCE).position(is_it).map_or(0, |place| place as u64 + 1)
}
