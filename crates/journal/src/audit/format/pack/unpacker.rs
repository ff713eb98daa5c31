//! Unpacking.

use super::numbers::{Input, unzigzag};
use super::{
    COLUMNS, ColumnState, FIRST, KINDS, LAYOUTS, LINES, RANDOM, RANDOMS, STREAMS, TEXTS, TRACE, TRACED, WHOLE,
    layout_of, number_after,
};
use crate::audit::format::version::VERSION;
use crate::audit::format::{frame, id_text};

/// Unpacks lines, of which there are this many bytes. `None` when the bytes are not those of [`pack`].
pub(crate) fn unpack(packed: &[u8], length: usize) -> Option<Vec<u8>> {
    let mut rest = Input(packed.strip_prefix(&[VERSION])?);
    let first = rest.number()?;
    let mut streams = [Input(&[]); STREAMS];
    for stream in &mut streams {
        let length = usize::try_from(rest.number()?).ok()?;
        *stream = Input(rest.bytes(length)?);
    }
    let columns = std::array::from_fn(|_| ColumnState::default());
    let texts = std::array::from_fn(|_| Vec::new());
    let mut unpacker =
        Unpacker { streams, columns, texts, ids: Vec::new(), first, next: None, out: Vec::with_capacity(length) };
    while let Some(kind) = unpacker.streams[KINDS].byte() {
        unpacker.add(kind)?;
    }
    (unpacker.out.len() == length).then_some(unpacker.out)
}

struct Unpacker<'a> {
    streams: [Input<'a>; STREAMS],
    columns: [ColumnState; COLUMNS],
    /// The dictionaries.
    texts: [Vec<&'a [u8]>; COLUMNS],
    ids: Vec<[u8; id_text::LENGTH]>,
    first: u64,
    next: Option<u64>,
    out: Vec<u8>,
}

impl<'a> Unpacker<'a> {
    fn add(&mut self, kind: u8) -> Option<()> {
        if kind == WHOLE {
            let line = self.streams[LINES].text()?;
            self.next = number_after(line).or(self.next);
            self.out.extend_from_slice(line);
            return Some(());
        }
        let untraced = kind.checked_sub(TRACED);
        let (_, layout, first_column) = layout_of(LAYOUTS.get(usize::from(untraced.unwrap_or(kind)))?.letter)?;
        let start = self.out.len();
        self.out.extend_from_slice(&[layout.letter, b'\t']);
        if layout.is_reference {
            self.add_reference(first_column)?
        } else {
            self.add_id(first_column)?
        }
        let texts = first_column + 1 + layout.numbers.len();
        let numbers_after = texts + layout.texts.len();
        (first_column + 1..texts).try_for_each(|at| self.add_number(at))?;
        (texts..numbers_after).try_for_each(|at| self.add_text(at))?;
        (numbers_after..first_column + layout.columns()).try_for_each(|at| self.add_number(at))?;
        if untraced.is_some() {
            self.add_trace()?;
        }
        let n = self.next.unwrap_or(self.first);
        self.next = n.checked_add(1);
        frame::finish_compact(&mut self.out, start, n);
        Some(())
    }

    fn add_id(&mut self, at: usize) -> Option<()> {
        let state = &mut self.columns[at];
        state.number = state.number.wrapping_add(unzigzag(self.streams[FIRST + at].number()?));
        let random: [u8; RANDOM] = self.streams[RANDOMS].bytes(RANDOM)?.try_into().ok()?;
        let random = random.iter().fold(0, |id, byte| id << 8 | u128::from(*byte));
        let text = id_text::encode(u128::from(state.number) << 80 | random);
        self.out.extend_from_slice(&text);
        self.ids.push(text);
        Some(())
    }

    fn add_trace(&mut self) -> Option<()> {
        let trace = u128::from_be_bytes(self.streams[RANDOMS].bytes(TRACE)?.try_into().ok()?);
        self.out.push(b'\t');
        self.out.extend_from_slice(&id_text::encode(trace));
        Some(())
    }

    fn add_reference(&mut self, at: usize) -> Option<()> {
        match usize::try_from(self.streams[FIRST + at].number()?).ok()? {
            0 => self.out.extend_from_slice(self.streams[TEXTS].text()?),
            distance => self.out.extend_from_slice(&self.ids[self.ids.len().checked_sub(distance)?]),
        }
        Some(())
    }

    fn add_number(&mut self, at: usize) -> Option<()> {
        self.out.push(b'\t');
        let Some(difference) = self.streams[FIRST + at].number()?.checked_sub(1) else {
            self.out.extend_from_slice(self.streams[TEXTS].text()?);
            return Some(());
        };
        let state = &mut self.columns[at];
        state.number = state.number.wrapping_add(unzigzag(difference));
        frame::push_decimal(&mut self.out, state.number);
        Some(())
    }

    fn add_text(&mut self, at: usize) -> Option<()> {
        self.out.push(b'\t');
        let state = &mut self.columns[at];
        match self.streams[FIRST + at].number()? {
            0 => {}
            1 => {
                state.text = self.texts[at].len() as u64;
                self.texts[at].push(self.streams[TEXTS].text()?);
            }
            token => state.text = token - 2,
        }
        let text = self.texts[at].get(usize::try_from(state.text).ok()?)?;
        self.out.extend_from_slice(text);
        Some(())
    }
}
