//! Packing of lines before they are compressed, and the way back: the same lines, byte by byte.
//!
//! Compact lines ([`encode`](super::encode)) have much that follows from the rest: the numbers of lines, the checksums,
//! the id that an outcome repeats, principals that come again and again. Compressing the lines as they are costs
//! several times as many instructions for twice as many bytes.
//!
//! - Fields of one kind are gathered in a column: ids, numbers as differences, texts as places in a dictionary.
//! - The id of a trace, behind the other fields of a traced use, is random: it costs its 16 bytes.
//! - A line is packed only when its number is the next one and its checksum is right; every other one,
//!   and JSON, stays whole.
//! - What is packed together is unpacked together: nothing refers to lines before.
//!
//! # One line
//!
//! An outcome of some 70 bytes, behind that of another request with the same status, takes seven, one in each stream:
//!
//! ```text
//! o⇥019a…7b1⇥completed⇥200⇥1210⇥0⇥431⇥8⇥a2c1
//! |    |         |      |    |  |  |  +--+- number and checksum: none, since they follow
//! |    |         |      |    |  |  +------- ResponseBytes: 1, as in the line before (difference 0, plus 1)
//! |    |         |      |    |  +---------- RequestBytes: 1, as before
//! |    |         |      |    +------------- Duration: 21, 10 more than before (twice the difference, plus 1)
//! |    |         |      +------------------ Status: 1, as before
//! |    |         +------------------------- OUTCOME: 0, the text of the line before
//! |    +----------------------------------- id: 1, that of the last use
//! +---------------------------------------- kind: 2, an outcome
//! ```

mod numbers;
mod fields;
mod packer;
mod unpacker;

pub(crate) use numbers::{Input, put};
pub(crate) use packer::pack;
pub(crate) use unpacker::unpack;

use std::ops::Range;

use super::frame;

/// Packed lines.
pub(crate) struct Packed {
    pub(crate) bytes: Vec<u8>,
    /// The part that is random, and which nothing compresses.
    pub(crate) random: Range<usize>,
}

/// A column of numbers: one field of the lines of a kind.
#[derive(Clone, Copy)]
enum Number {
    /// Microseconds after the millisecond in the id.
    Time,
    /// Number of the use among those of its key.
    Use,
    Status,
    Duration,
    RequestBytes,
    ResponseBytes,
}

// Columns of texts. Each has a number of fields that mostly come together: they are one text with their tabs.

/// Flags and the method of authentication.
const ORIGIN: usize = 2;
/// Key, user and organization.
const CALLER: usize = 3;
/// Address and user agent.
const CLIENT: usize = 2;
/// Action and method of the request.
const ACTION: usize = 2;
const PATH: usize = 1;
const OUTCOME: usize = 1;

/// A kind of lines: an id, numbers, texts, and numbers again. Each of them is a column, in the order of
/// [`encode`](super::encode).
struct Layout {
    letter: u8,
    /// The id is that of an earlier use.
    is_reference: bool,
    /// Numbers behind the id.
    numbers: &'static [Number],
    /// Numbers of fields of the texts.
    texts: &'static [usize],
    /// Numbers behind the texts.
    numbers_after: &'static [Number],
}

/// The beginning of a use, in a line of its own or in a record.
const BEGINNING: &[Number] = &[Number::Time, Number::Use];
/// The end of a use, behind its outcome.
const END: &[Number] = &[Number::Status, Number::Duration, Number::RequestBytes, Number::ResponseBytes];

/// The kinds of lines that are packed: uses, records and outcomes. Lines with other fields stay whole.
const LAYOUTS: [Layout; 3] = [
    Layout {
        letter: b'u',
        is_reference: false,
        numbers: BEGINNING,
        texts: &[ORIGIN, CALLER, CLIENT, ACTION, PATH],
        numbers_after: &[],
    },
    Layout {
        letter: b'r',
        is_reference: false,
        numbers: BEGINNING,
        texts: &[ORIGIN, CALLER, CLIENT, ACTION, PATH, OUTCOME],
        numbers_after: END,
    },
    Layout { letter: b'o', is_reference: true, numbers: &[], texts: &[OUTCOME], numbers_after: END },
];
/// Columns of all kinds.
const COLUMNS: usize = 8 + 13 + 6;
/// Bytes of an id after its time.
const RANDOM: usize = 10;
/// Bytes of the id of a trace.
const TRACE: usize = 16;
/// In the stream of kinds: a line that stays whole.
const WHOLE: u8 = LAYOUTS.len() as u8;
/// In the stream of kinds: added to the kind of a line with the id of a trace.
const TRACED: u8 = WHOLE + 1;

/// The streams of packed lines: the kind of each line, whole lines, new texts, the random parts of
/// ids, and the columns.
const STREAMS: usize = FIRST + COLUMNS;
const KINDS: usize = 0;
const LINES: usize = 1;
const TEXTS: usize = 2;
const RANDOMS: usize = 3;
/// The number of the first column's stream.
const FIRST: usize = 4;

/// The state of a column, the same at a line in both directions.
#[derive(Default)]
struct ColumnState {
    /// The number before.
    number: u64,
    /// The place of the text before in the dictionary.
    text: u64,
}

impl Layout {
    /// Number of columns.
    const fn columns(&self) -> usize {
        1 + self.numbers.len() + self.texts.len() + self.numbers_after.len()
    }
}

/// The kind of lines that begin with this letter: its number, its layout, and the number of its first column.
fn layout_of(letter: u8) -> Option<(u8, &'static Layout, usize)> {
    let kind = LAYOUTS.iter().position(|layout| layout.letter == letter)?;
    let before = LAYOUTS[..kind].iter().map(Layout::columns).sum();
    Some((kind as u8, &LAYOUTS[kind], before))
}

/// The number that follows that of a line; `None` when the line is damaged.
fn number_after(line: &[u8]) -> Option<u64> {
    frame::verify_line(line.strip_suffix(b"\n")?)?.checked_add(1)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::audit::format::id_text;

    /// Fields as they are written, and in forms that the gateway never writes.
    fn field() -> impl Strategy<Value = String> {
        prop_oneof![
            Just(String::new()),
            any::<u64>().prop_map(|number| number.to_string()),
            (0_u64..2000).prop_map(|number| number.to_string()),
            any::<u128>().prop_map(|id| String::from_utf8(id_text::encode(id).to_vec()).expect("it is ASCII")),
            prop::sample::select(vec![
                "007",
                "+7",
                "-7",
                "k",
                "p",
                "completed",
                "GET",
                "/api/queries",
                "\u{fffd}",
                "18446744073709551616"
            ])
            .prop_map(str::to_owned),
        ]
    }

    /// Bodies of lines of every kind, mostly with the number of fields that they have.
    fn body() -> impl Strategy<Value = Vec<u8>> {
        let id = (0_u128..50).prop_map(|n| id_text::encode(0x0190_0000_0000_7000_8000_0000_0000_0000 + (n << 77)));
        let fields = prop_oneof![4 => Just(13_usize), 2 => Just(18), 4 => Just(5), 1 => 0_usize..30];
        let fields = fields.prop_flat_map(|count| prop::collection::vec(field(), count));
        let trace = prop::option::weighted(0.3, any::<u128>().prop_map(id_text::encode));
        (prop::sample::select(b"uroouuxc{".to_vec()), prop::option::weighted(0.9, id), fields, trace).prop_map(
            |(letter, id, fields, trace)| {
                let mut body = vec![letter];
                id.iter().for_each(|id| body.extend_from_slice(&[b"\t".as_slice(), id].concat()));
                fields.iter().for_each(|field| body.extend_from_slice(&[b"\t", field.as_bytes()].concat()));
                trace.iter().for_each(|trace| body.extend_from_slice(&[b"\t".as_slice(), trace].concat()));
                body
            },
        )
    }

    fn lines() -> impl Strategy<Value = Vec<u8>> {
        // A gap in the numbers, or a byte that was changed, or an end that is missing.
        let line = (body(), prop::option::weighted(0.05, any::<u64>()), prop::option::weighted(0.05, any::<u8>()));
        (prop::collection::vec(line, 0..60), any::<u32>(), 0_usize..3).prop_map(|(bodies, first, cut)| {
            let mut lines = Vec::new();
            let mut n = u64::from(first);
            for (body, gap, changed) in bodies {
                let start = lines.len();
                n = gap.unwrap_or(n.wrapping_add(1));
                lines.extend_from_slice(&body);
                frame::finish_compact(&mut lines, start, n);
                let at = start + usize::from(changed.unwrap_or(0)) % (lines.len() - start);
                lines[at] = lines[at].wrapping_add(u8::from(changed.is_some()));
            }
            lines.truncate(lines.len().saturating_sub(cut));
            lines
        })
    }

    proptest! {
        #[test]
        fn lines_are_unpacked_as_they_were(lines in lines()) {
            prop_assert_eq!(unpack(&pack(&lines).bytes, lines.len()).expect("it was packed"), lines);
        }

        #[test]
        fn bytes_of_any_kind_are_unpacked_as_they_were(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            prop_assert_eq!(unpack(&pack(&bytes).bytes, bytes.len()).expect("it was packed"), bytes);
        }

        #[test]
        fn other_bytes_are_refused_or_become_other_lines(
            lines in lines(), at in any::<prop::sample::Index>(), byte in any::<u8>(),
        ) {
            let mut packed = pack(&lines).bytes;
            *at.get_mut(&mut packed) = byte;
            unpack(&packed, lines.len());
        }
    }

    #[test]
    fn values_at_the_edges_are_unpacked_as_they_were() {
        let id = |n: u128| String::from_utf8(id_text::encode(n << 80 | n).to_vec()).expect("it is ASCII");
        let largest = 1_u64 << 63;
        let mut bodies: Vec<String> = Vec::new();
        for n in 1..9 {
            // A text that begins with the one before it, and numbers whose difference is as large as it can be.
            let path = "/a".repeat(usize::try_from(n).expect("it is small"));
            let number = if n % 2 == 0 { 0 } else { largest };
            bodies.push(format!("u\t{}\t0\t{number}\t\tk\tk\tu\to\t::1\tcurl\tlist\tGET\t{path}", id(n)));
        }
        for n in (1..9).rev().chain([1, 8]) {
            bodies.push(format!("o\t{}\tcompleted\t200\t{largest}\t{}\t0", id(n), u64::MAX));
        }
        for first in [1, u64::MAX - 3] {
            let mut lines = Vec::new();
            for (i, body) in bodies.iter().enumerate() {
                let start = lines.len();
                lines.extend_from_slice(body.as_bytes());
                frame::finish_compact(&mut lines, start, first.saturating_add(i as u64));
            }
            assert_eq!(unpack(&pack(&lines).bytes, lines.len()).as_ref(), Some(&lines));
        }
    }

    /// The streams of packed lines.
    fn streams(lines: &[u8]) -> Vec<Vec<u8>> {
        let packed = pack(lines).bytes;
        let mut input = Input(&packed[1..]);
        input.number().unwrap();
        let streams = (0..STREAMS).map(|_| {
            let length = input.number().unwrap();
            input.bytes(usize::try_from(length).unwrap()).unwrap().to_vec()
        });
        streams.collect()
    }

    /// The line of the module's documentation.
    #[test]
    fn outcome_takes_a_byte_in_each_of_seven_streams() {
        let id = |n: u128| String::from_utf8(id_text::encode(n << 80 | n).to_vec()).unwrap();
        let mut lines = Vec::new();
        let mut ends = Vec::new();
        for (n, duration) in [(1, 1200), (2, 1210)] {
            for body in [
                format!("u\t{}\t0\t7\t\tk\tk\tu\to\t::1\tcurl\tlist\tGET\t/a", id(n)),
                format!("o\t{}\tcompleted\t200\t{duration}\t0\t431", id(n)),
            ] {
                let start = lines.len();
                lines.extend_from_slice(body.as_bytes());
                frame::finish_compact(&mut lines, start, 5 + ends.len() as u64);
                ends.push(lines.len());
            }
        }
        let without = streams(&lines[..ends[2]]);
        let with = streams(&lines);
        let added = with.iter().zip(&without).map(|(with, without)| with.strip_prefix(&without[..]).unwrap().to_vec());
        let added: Vec<Vec<u8>> = added.filter(|bytes| !bytes.is_empty()).collect();
        assert_eq!(added, [[2], [1], [0], [1], [21], [1], [1]]);
    }

    /// Lines of 21 uses and their outcomes as they are written, from this number on; `trace` is behind
    /// the fields of a use.
    fn written_lines(first: u64, trace: impl Fn(u128) -> String) -> Vec<u8> {
        let id = id_text::encode(0x0190_0000_0000_7000_8000_0000_0000_0000).to_vec();
        let id = String::from_utf8(id).expect("it is ASCII");
        let mut lines = Vec::new();
        let mut n = first;
        for number in 99..120 {
            let trace = trace(number);
            for body in [
                format!("u\t{id}\t{number}\t7\t\tk\tk{number}\tu\to\t::1\tcurl\tlist\tGET\t/a{trace}"),
                format!("o\t{id}\tcompleted\t200\t1234567\t0\t947"),
                format!(
                    "r\t{id}\t{number}\t7\t\tk\tk{number}\tu\to\t::1\tcurl\tlist\tGET\t/a\tforbidden\t403\
                     \t9\t0\t9{trace}"
                ),
            ] {
                let start = lines.len();
                lines.extend_from_slice(body.as_bytes());
                frame::finish_compact(&mut lines, start, n);
                n += 1;
            }
        }
        lines
    }

    /// Text of the field of a trace.
    fn trace(id: u128) -> String {
        format!("\t{}", String::from_utf8(id_text::encode(id).to_vec()).expect("it is ASCII"))
    }

    /// The kinds of packed lines.
    fn kinds(packed: &[u8]) -> &[u8] {
        let mut streams = Input(&packed[1..]);
        streams.number().expect("the first number");
        streams.text().expect("the kinds")
    }

    #[test]
    fn lines_as_they_are_written_are_packed() {
        // With numbers of eleven digits, a line has tabs where they would enclose the id of a trace.
        for first in [9, 10_000_000_000] {
            let packed = pack(&written_lines(first, |_| String::new())).bytes;
            assert_eq!(kinds(&packed), [0, 2, 1].repeat(21));
        }
    }

    /// One of the ids begins with the digits of the line's number.
    #[test]
    fn traced_lines_cost_the_bytes_of_their_trace() {
        let untraced = pack(&written_lines(7, |_| String::new())).bytes.len();
        let digits = 0xd76d_f8e7_aefc_f74d_76df_8e7a_efcf_74d7_u128;
        for id in [0, 1, digits, u128::MAX] {
            let lines = written_lines(7, |number| trace(id ^ number));
            let packed = pack(&lines).bytes;
            assert_eq!(kinds(&packed), [4, 2, 5].repeat(21));
            assert_eq!(packed.len() - untraced, TRACE * 42);
            assert!(unpack(&packed, lines.len()) == Some(lines));
        }
        let mixed = written_lines(7, |number| if number % 2 == 0 { trace(number) } else { String::new() });
        assert!(unpack(&pack(&mixed).bytes, mixed.len()) == Some(mixed));
    }

    #[test]
    fn columns_are_counted() {
        assert_eq!(LAYOUTS.iter().map(Layout::columns).sum::<usize>(), COLUMNS);
    }
}
