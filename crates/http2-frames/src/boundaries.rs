//! Boundaries of frames in a sequence of bytes that comes in pieces.

/// Bytes of a frame's header.
const HEADER: usize = 9;
/// Bytes of the header from its flags to its end.
const FROM_FLAGS: usize = 5;

// Types and flags of frames (section 6).
pub(super) const DATA: u8 = 0;
pub(super) const HEADERS: u8 = 1;
pub(super) const RST_STREAM: u8 = 3;
pub(super) const GOAWAY: u8 = 7;
pub(super) const WINDOW_UPDATE: u8 = 8;
pub(super) const CONTINUATION: u8 = 9;
pub(super) const END_STREAM: u8 = 0x1;
pub(super) const END_HEADERS: u8 = 0x4;
pub(super) const PADDED: u8 = 0x8;
pub(super) const PRIORITY: u8 = 0x20;

/// Header of a frame.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct FrameHeader {
    /// Bytes of the payload.
    pub(super) length: usize,
    pub(super) kind: u8,
    pub(super) flags: u8,
    pub(super) stream: u32,
    /// Place of the flags among the bytes that hold the end of the header; none when they were in a piece before.
    pub(super) flags_at: Option<usize>,
}

/// Position in a sequence of frames.
#[derive(Debug)]
pub(super) struct Boundaries {
    /// Bytes before the next frame's header: of a preface, then of payloads.
    pub(super) left: usize,
    header: [u8; HEADER],
    /// Bytes of `header` that have come.
    header_length: usize,
}

impl Boundaries {
    /// Position before the first frame, which so many bytes precede.
    pub(super) fn new(preface: usize) -> Self {
        Self { left: preface, header: [0; HEADER], header_length: 0 }
    }

    /// Takes the bytes of a header from `at` on, where no byte of a payload is left. Returns the header when it is
    /// whole; its payload is what is `left` then.
    pub(super) fn read_header(&mut self, bytes: &[u8], at: &mut usize) -> Option<FrameHeader> {
        let take = (HEADER - self.header_length).min(bytes.len() - *at);
        self.header[self.header_length..self.header_length + take].copy_from_slice(&bytes[*at..*at + take]);
        self.header_length += take;
        *at += take;
        if self.header_length < HEADER {
            return None;
        }
        self.header_length = 0;
        let [a, b, c, kind, flags, stream @ ..] = self.header;
        self.left = usize::from(a) << 16 | usize::from(b) << 8 | usize::from(c);
        let stream = u32::from_be_bytes(stream) & 0x7fff_ffff;
        Some(FrameHeader { length: self.left, kind, flags, stream, flags_at: at.checked_sub(FROM_FLAGS) })
    }
}
