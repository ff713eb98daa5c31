//! Fields of heads, as far as they matter, and the table of those that a connection's heads have entered (RFC 7541,
//! section 2.3.2).

/// Entries that a table of the default size (4,096 bytes) has at most: each counts 32 bytes beside its text.
const MAX_ENTRIES: usize = 128;
/// Entries of the table of common fields (appendix A).
const COMMON: usize = 61;

/// `http` and `https`, and the names below, as they are and in Huffman code.
const SCHEMES: [&[u8]; 4] = [b"http", b"https", b"\x9d\x29\xaf", b"\x9d\x29\xad\x1f"];
const NAMES: [(&[u8], Field); 6] = [
    (b":path", Field::Path),
    (b"\xb9\x58\xd3\x3f", Field::Path),
    (b":scheme", Field::Scheme),
    (b"\xb8\x82\x4e\x5a\x4b", Field::Scheme),
    (b":status", Field::Status),
    (b"\xb8\x84\x8d\x36\xa3", Field::Status),
];

/// Field of a head, as far as it matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Field {
    /// A regular field.
    Other,
    /// A pseudo-field that is none of those below.
    Pseudo,
    /// `:path`.
    Path,
    /// `:scheme` with `http` or `https`.
    Scheme,
    /// `:scheme` with another value.
    OtherScheme,
    /// `:status` of a final response.
    Status,
    /// `:status` of an interim response (1xx), other than 101.
    Interim,
    /// `:status: 101`, which HTTP/2 does not have (RFC 9113, section 8.6).
    Switch,
}

/// Kinds of the entries of the connection's table, the newest one lowest, in three bits each. Entries that have fallen
/// out of the table are beyond those that a head can name.
#[derive(Debug, Default)]
pub(super) struct Entries([u128; 3]);

impl Field {
    /// Fields by the bits that [`Entries`] keeps.
    const ALL: [Self; 8] = [
        Self::Other,
        Self::Pseudo,
        Self::Path,
        Self::Scheme,
        Self::OtherScheme,
        Self::Status,
        Self::Interim,
        Self::Switch,
    ];

    pub(super) fn of_name(name: &[u8], is_coded: bool) -> Self {
        let named = NAMES.iter().find(|(text, _)| *text == name).map(|(_, field)| *field);
        named.unwrap_or_else(|| Self::of_long_name(name, is_coded))
    }

    /// A name that is none of those that matter.
    pub(super) fn of_long_name(name: &[u8], is_coded: bool) -> Self {
        // The code of the colon has seven bits.
        let is_pseudo = name.first().is_some_and(|first| if is_coded { *first >> 1 == 0x5c } else { *first == b':' });
        if is_pseudo { Self::Pseudo } else { Self::Other }
    }

    pub(super) fn of_scheme(scheme: &[u8]) -> Self {
        if SCHEMES.contains(&scheme) { Self::Scheme } else { Self::OtherScheme }
    }

    /// In Huffman code, 0 is `00000` and 1 is `00001`.
    pub(super) fn of_status(text: &[u8], is_coded: bool) -> Self {
        match (text, is_coded) {
            (b"101", false) => Self::Switch,
            ([0x08, 0x02 | 0x03, ..], true) => Self::Switch,
            ([b'1', ..], false) => Self::Interim,
            ([0x08..0x10, ..], true) => Self::Interim,
            _ => Self::Status,
        }
    }

    /// The name of a field, for another value.
    pub(super) fn without_value(self) -> Self {
        match self {
            Self::OtherScheme => Self::Scheme,
            Self::Interim | Self::Switch => Self::Status,
            name => name,
        }
    }
}

impl Entries {
    pub(super) fn enter(&mut self, field: Field) {
        for (bit, plane) in self.0.iter_mut().enumerate() {
            *plane = *plane << 1 | u128::from(field as u8 >> bit & 1);
        }
    }

    /// The field at a place of both tables, the common one first.
    pub(super) fn field(&self, place: usize) -> Field {
        match place {
            1..=3 => Field::Pseudo,
            4 | 5 => Field::Path,
            6 | 7 => Field::Scheme,
            8..=14 => Field::Status,
            _ => match place.checked_sub(COMMON + 1) {
                Some(age) if age < MAX_ENTRIES => {
                    Field::ALL[(0..3).fold(0, |code, bit| code | usize::from(self.0[bit] >> age & 1 == 1) << bit)]
                }
                // A common field, or one that is not in the table: the library ends the connection.
                _ => Field::Other,
            },
        }
    }
}
