//! Fields of a line while it is packed, from its beginning on.
//!
//! - The end of the line is not sought before. Numbers and texts end at a newline, and the checksum behind the fields
//!   decides whether they are those of one line.
//! - Most fields are those of the line before, and comparing them costs less than reading them.

use super::numbers;
use crate::audit::format::id_text;

/// The fields of a line that are not read yet, each behind a tab, and the lines behind it.
pub(super) struct Fields<'a> {
    pub(super) rest: &'a [u8],
}

/// The field of a number.
#[derive(Clone, Copy, Default)]
pub(super) enum NumberField<'a> {
    /// That of the line before.
    #[default]
    Same,
    /// A number, and its text.
    Number(u64, NumberText),
    /// Text that is not a number, or not written as the number would be.
    Other(&'a [u8]),
}

/// The text of a number and the tab behind it, where both have eight bytes at most; else a text that no field has.
#[derive(Clone, Copy)]
pub(super) struct NumberText {
    bytes: u64,
    /// Covers the text and the tab.
    mask: u64,
}

impl NumberText {
    /// A text that no field has.
    pub(super) const NONE: Self = Self { bytes: 1, mask: 0 };

    fn new(field: &[u8], length: usize) -> Self {
        match field.first_chunk() {
            Some(chunk) if length < size_of::<u64>() => {
                let mask = u64::MAX >> (56 - 8 * length);
                Self { bytes: u64::from_le_bytes(*chunk) & mask, mask }
            }
            _ => Self::NONE,
        }
    }

    /// Passes over this text at the beginning of a field; `None` when there is another one.
    fn skip(self, field: &[u8]) -> Option<&[u8]> {
        let chunk = u64::from_le_bytes(*field.first_chunk()?);
        // The tab stays.
        let length = || self.mask.count_ones() as usize / 8 - 1;
        (chunk & self.mask == self.bytes).then(|| &field[length()..])
    }
}

/// The number that the next line has, with its text: counting on in digits costs less than writing or reading a number.
pub(super) struct NextNumber {
    number: u64,
    /// A tab and the digits, at the end.
    bytes: [u8; Self::LENGTH],
    from: usize,
}

impl NextNumber {
    /// A tab, and digits of the largest number.
    const LENGTH: usize = 21;

    pub(super) fn new(number: u64) -> Self {
        let mut digits = itoa::Buffer::new();
        let mut bytes = [b'\t'; Self::LENGTH];
        let digits = digits.format(number).as_bytes();
        bytes[Self::LENGTH - digits.len()..].copy_from_slice(digits);
        Self { number, bytes, from: Self::LENGTH - digits.len() - 1 }
    }

    fn text(&self) -> &[u8] {
        &self.bytes[self.from..]
    }

    /// Counts on. The number is not the largest one.
    pub(super) fn increment(&mut self) {
        match &mut self.bytes[Self::LENGTH - 1] {
            b'9' => *self = Self::new(self.number + 1),
            digit => {
                *digit += 1;
                self.number += 1;
            }
        }
    }
}

impl<'a> Fields<'a> {
    /// An id, and a field behind it.
    #[inline]
    pub(super) fn id(&mut self) -> Option<&'a [u8]> {
        let (field, rest) = self.rest.split_at_checked(1 + id_text::LENGTH)?;
        self.rest = rest;
        (field[0] == b'\t' && rest.first() == Some(&b'\t')).then(|| &field[1..])
    }

    /// The field of a number; `last` is its text in the line before.
    #[inline]
    pub(super) fn number(&mut self, last: NumberText) -> Option<NumberField<'a>> {
        let field = self.rest.strip_prefix(b"\t")?;
        if let Some(rest) = last.skip(field) {
            self.rest = rest;
            return Some(NumberField::Same);
        }
        let Some((number, rest)) = numbers::parse_field(field) else {
            return Some(NumberField::Other(&self.text(1)?[1..]));
        };
        self.rest = rest;
        Some(NumberField::Number(number, NumberText::new(field, field.len() - rest.len())))
    }

    /// The number of the line; `None` when it is not the next one.
    #[inline]
    pub(super) fn line_number(&mut self, next: Option<&NextNumber>) -> Option<u64> {
        let Some(next) = next else {
            return match self.number(NumberText::NONE)? {
                NumberField::Number(first, _) => Some(first),
                NumberField::Same | NumberField::Other(_) => None,
            };
        };
        self.rest = self.rest.strip_prefix(next.text())?;
        (next.number < u64::MAX).then_some(next.number)
    }

    /// The id of a trace, when the next field is one. The number and the checksum of a line never are: a tab is among
    /// their first characters.
    #[inline]
    pub(super) fn trace(&mut self) -> Option<u128> {
        let (field, rest) = self.rest.split_at_checked(1 + id_text::LENGTH)?;
        if rest.first() != Some(&b'\t') {
            return None;
        }
        let trace = id_text::decode(field.strip_prefix(b"\t")?)?;
        self.rest = rest;
        Some(trace)
    }

    /// Passes over these fields, with the tab before them, when they are there.
    #[inline]
    pub(super) fn skip(&mut self, last: &[u8]) -> bool {
        match self.rest.strip_prefix(last) {
            Some(rest) if rest.first() == Some(&b'\t') && !last.is_empty() => {
                self.rest = rest;
                true
            }
            _ => false,
        }
    }

    /// A text of this many fields, with the tab before it.
    pub(super) fn text(&mut self, fields: usize) -> Option<&'a [u8]> {
        let behind = self.rest.strip_prefix(b"\t")?;
        let (text, rest) = self.rest.split_at(1 + tab(behind, fields)?);
        self.rest = rest;
        Some(text)
    }
}

/// The place of the tab with this number; `None` when the line ends before it.
fn tab(bytes: &[u8], number: usize) -> Option<usize> {
    let mut at = 0;
    let mut left = number;
    while let Some(chunk) = bytes[at..].first_chunk() {
        let mut separators = separators(u64::from_le_bytes(*chunk));
        while separators != 0 {
            let place = at + separators.trailing_zeros() as usize / 8;
            match bytes[place] {
                b'\n' => return None,
                b'\t' => left -= 1,
                _ => {}
            }
            if left == 0 {
                return Some(place);
            }
            separators &= separators - 1;
        }
        at += size_of::<u64>();
    }
    let behind = |place: &usize| bytes[at..*place].iter().filter(|byte| **byte == b'\t').count() + 1 == left;
    let is_tab = |place: &usize| bytes[*place] == b'\t' && behind(place);
    (at..bytes.len()).take_while(|place| bytes[*place] != b'\n').find(is_tab)
}

/// The highest bit of each byte that is a tab or a newline, or one of two control characters beside them.
fn separators(bytes: u64) -> u64 {
    const EACH: u64 = 0x0101_0101_0101_0101;
    // Zero where the byte is from 8 to 11.
    let others = (bytes & (0xfc * EACH)) ^ (0x08 * EACH);
    !(((others & (0x7f * EACH)) + 0x7f * EACH) | others | (0x7f * EACH))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn tab_is_the_one_with_the_number_and_in_the_same_line(
            bytes in prop::collection::vec(prop::sample::select(b"\t\t\t\n\x08\x0bab\x89\x8a".to_vec()), 0..60),
            number in 1_usize..5,
        ) {
            let line = bytes.split(|byte| *byte == b'\n').next().expect("there is a first one");
            let tabs = line.iter().enumerate().filter(|(_, byte)| **byte == b'\t').map(|(place, _)| place);
            prop_assert_eq!(tab(&bytes, number), tabs.clone().nth(number - 1));
        }

        #[test]
        fn number_is_the_same_exactly_when_its_text_is(number in 0_u64..200_000_000, other in 0_u64..200_000_000) {
            let first = format!("\t{number}\t completed");
            let second = format!("\t{other}\t completed");
            let NumberField::Number(_, last) = read(&first, NumberText::NONE) else { panic!("it is a number") };
            let is_same = |text| matches!(read(text, last), NumberField::Same);
            prop_assert_eq!(is_same(&second), number == other && number < 10_000_000);
            prop_assert_eq!(is_same(&first), number < 10_000_000);
        }
    }

    /// The number at the beginning of a text, of which the rest stays.
    fn read(text: &str, last: NumberText) -> NumberField<'_> {
        let mut fields = Fields { rest: text.as_bytes() };
        let read = fields.number(last).expect("a number");
        assert_eq!(fields.rest, b"\t completed");
        read
    }

    #[test]
    fn next_number_counts_on_in_digits() {
        for from in [0, 8, 9, 99, 999_999, u64::MAX - 2] {
            let mut next = NextNumber::new(from);
            for number in from..from.saturating_add(30) {
                assert_eq!(next.text(), format!("\t{number}").as_bytes());
                next.increment();
            }
        }
    }
}
