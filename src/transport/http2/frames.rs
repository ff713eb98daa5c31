//! HTTP/2 frames as they pass (RFC 9113, section 4.1): how many ask for nothing, and whether a head is on its way.
//!
//! The HTTP library bounds what it keeps: streams that were reset and not accepted yet, streams that it had to reset
//! itself, CONTINUATION frames of one head, DATA frames of a few bytes or of padding. What remains is work for nothing:
//! PING and SETTINGS that must be answered, empty frames, priorities, resets. A client may send some, and more the more
//! requests it makes, but no floods of them.

use tokio::time::Instant;

/// The connection preface that stands before the first frame (section 3.4).
const PREFACE: usize = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".len();
/// Bytes before a frame's payload.
const HEADER: usize = 9;

/// Idle frames that a client may send at any time: a burst of them for each change of its settings, or a keep-alive. On
/// top of them it may reset all its streams at once, as a proxy does whose own clients go away.
const ALLOWANCE: u32 = 200;
/// What a second gives back.
const PER_SECOND: u32 = 20;
/// What a request gives back, for its priority and its windows.
const PER_REQUEST: u32 = 2;
/// What a piece of a response gives back: for a PING and a WINDOW_UPDATE.
const PER_PIECE: u32 = 2;
/// What a reset costs: more than its request gave back, so that requests that are all reset are a flood, too.
const RESET: u32 = 4;

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const WINDOW_UPDATE: u8 = 8;
const CONTINUATION: u8 = 9;
const END_STREAM: u8 = 0x1;
const END_HEADERS: u8 = 0x4;
/// Bytes that a client may take for one frame that makes room for more.
const BYTES_PER_UPDATE: u64 = 512;

/// What the bytes of a client say.
#[derive(Debug)]
pub(super) struct Frames {
    /// Bytes to skip before the next frame's header: the preface, and then payloads.
    skip: usize,
    header: [u8; HEADER],
    /// How much of `header` has come.
    known: usize,
    /// Whether a head has begun and its last frame has not.
    in_head: bool,
    /// Whether `skip` is of a head's payload.
    in_payload: bool,
    highest_stream: u32,
    /// The most that `allowance` can be.
    most: u32,
    allowance: u32,
    refilled: Instant,
    /// Bytes that were sent and for which no frame made room yet.
    sent: u64,
}

/// A client that only keeps us busy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Flood;

impl Frames {
    /// Of a connection that may have this many streams.
    pub(super) fn new(max_streams: u32) -> Self {
        let most = ALLOWANCE.saturating_add(max_streams.saturating_mul(RESET));
        Self {
            skip: PREFACE,
            header: [0; HEADER],
            known: 0,
            in_head: false,
            in_payload: false,
            highest_stream: 0,
            most,
            allowance: most,
            refilled: Instant::now(),
            sent: 0,
        }
    }

    /// Follows what has come.
    pub(super) fn follow(&mut self, mut bytes: &[u8]) -> Result<(), Flood> {
        while !bytes.is_empty() {
            let skip = self.skip.min(bytes.len());
            self.skip -= skip;
            bytes = &bytes[skip..];
            let take = (HEADER - self.known).min(bytes.len());
            self.header[self.known..self.known + take].copy_from_slice(&bytes[..take]);
            self.known += take;
            bytes = &bytes[take..];
            if self.known == HEADER {
                self.known = 0;
                self.frame()?;
            }
        }
        Ok(())
    }

    /// Bytes were sent to the client.
    pub(super) fn sent(&mut self, bytes: usize) {
        self.sent = self.sent.saturating_add(bytes as u64);
    }

    /// So many pieces of responses were sent: for each a client may ask how long they take, and make room for more, as
    /// some do to learn how much the network holds.
    pub(super) fn earned(&mut self, pieces: u32) {
        self.allowance = self.allowance.saturating_add(pieces.saturating_mul(PER_PIECE)).min(self.most);
    }

    /// Whether a head has begun and not ended.
    pub(super) fn in_head(&self) -> bool {
        self.in_head || (self.in_payload && self.skip > 0)
    }

    /// The last stream of which a head has begun.
    pub(super) fn highest_stream(&self) -> u32 {
        self.highest_stream
    }

    fn frame(&mut self) -> Result<(), Flood> {
        let [a, b, c, kind, flags, stream @ ..] = self.header;
        let length = u32::from_be_bytes([0, a, b, c]);
        self.skip = usize::try_from(length).unwrap_or(usize::MAX);
        self.in_payload = matches!(kind, HEADERS | CONTINUATION);
        match kind {
            HEADERS => {
                self.in_head = flags & END_HEADERS == 0;
                self.highest_stream = self.highest_stream.max(u32::from_be_bytes(stream) & 0x7fff_ffff);
                self.allowance = self.allowance.saturating_add(PER_REQUEST).min(self.most);
                Ok(())
            }
            CONTINUATION => {
                self.in_head = flags & END_HEADERS == 0;
                if length > 0 { Ok(()) } else { self.spend(1) }
            }
            DATA if length > 0 || flags & END_STREAM != 0 => Ok(()),
            WINDOW_UPDATE if self.sent >= BYTES_PER_UPDATE => {
                self.sent -= BYTES_PER_UPDATE;
                Ok(())
            }
            RST_STREAM => self.spend(RESET),
            _ => self.spend(1),
        }
    }

    fn spend(&mut self, cost: u32) -> Result<(), Flood> {
        if self.allowance < cost {
            let seconds = u32::try_from(self.refilled.elapsed().as_secs()).unwrap_or(u32::MAX);
            if seconds > 0 {
                self.refilled = Instant::now();
                let back = seconds.saturating_mul(PER_SECOND);
                self.allowance = self.allowance.saturating_add(back).min(self.most);
            }
        }
        self.allowance = self.allowance.checked_sub(cost).ok_or(Flood)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STREAMS: u32 = 10;

    fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
        let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
        [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
    }

    fn started() -> Frames {
        let mut frames = Frames::new(STREAMS);
        frames.follow(&[0; PREFACE]).unwrap();
        frames
    }

    #[test]
    fn floods_of_every_kind_are_seen() {
        const PING: u8 = 6;
        const SETTINGS: u8 = 4;
        const PRIORITY: u8 = 2;
        for (kind, payload) in [
            (PING, &[0; 8][..]),
            (SETTINGS, &[]),
            (PRIORITY, &[0; 5]),
            (DATA, &[]),
            (CONTINUATION, &[]),
            (WINDOW_UPDATE, &[0, 0, 0, 1]),
            (0xee, &[1]),
        ] {
            let mut frames = started();
            let flood = frame(kind, 0, 1, payload).repeat((ALLOWANCE + STREAMS * RESET) as usize);
            // In any pieces.
            assert!(flood.chunks(7).all(|piece| frames.follow(piece).is_ok()), "{kind}");
            assert_eq!(frames.follow(&frame(kind, 0, 1, payload)), Err(Flood), "{kind}");
        }
    }

    #[test]
    fn requests_that_are_all_reset_are_a_flood() {
        let mut frames = started();
        let mut resets = (0..1000).map(|stream| {
            frames.follow(&frame(HEADERS, END_HEADERS, stream * 2 + 1, b"head")).unwrap();
            frames.follow(&frame(RST_STREAM, 0, stream * 2 + 1, &[0; 4]))
        });
        assert!(resets.any(|followed| followed == Err(Flood)));
    }

    #[test]
    fn all_streams_may_be_reset_at_once() {
        let mut frames = started();
        for _ in 0..20 {
            for stream in 0..STREAMS {
                frames.follow(&frame(HEADERS, END_HEADERS, stream * 2 + 1, b"head")).unwrap();
            }
            for stream in 0..STREAMS {
                frames.follow(&frame(RST_STREAM, 0, stream * 2 + 1, &[0; 4])).unwrap();
            }
            // And as many requests are served.
            for stream in 0..STREAMS {
                frames.follow(&frame(HEADERS, END_HEADERS, stream * 2 + 1, b"head")).unwrap();
            }
        }
    }

    #[test]
    fn clients_that_work_are_no_flood() {
        let mut frames = started();
        for stream in 0..10_000 {
            frames.follow(&frame(HEADERS, END_HEADERS, stream * 2 + 1, b"head")).unwrap();
            frames.follow(&frame(DATA, 0, stream * 2 + 1, b"body")).unwrap();
            frames.follow(&frame(DATA, END_STREAM, stream * 2 + 1, b"")).unwrap();
            if stream % 3 == 0 {
                frames.follow(&frame(RST_STREAM, 0, stream * 2 + 1, &[0; 4])).unwrap();
            }
            frames.sent(2 * BYTES_PER_UPDATE as usize);
            frames.follow(&frame(WINDOW_UPDATE, 0, 0, &[0, 0, 0, 1]).repeat(2)).unwrap();
        }
        assert_eq!(frames.highest_stream(), 19_999);
    }

    #[test]
    fn who_asks_how_long_each_piece_took_is_no_flood() {
        let mut frames = started();
        for _ in 0..10_000 {
            frames.earned(1);
            frames.follow(&frame(6, 0, 0, &[0; 8])).unwrap();
            frames.follow(&frame(WINDOW_UPDATE, 0, 0, &[0, 0, 0, 1])).unwrap();
        }
    }

    #[test]
    fn knows_when_a_head_is_on_its_way() {
        let mut frames = started();
        frames.follow(&frame(HEADERS, 0, 1, b"he")).unwrap();
        assert!(frames.in_head());
        let last = frame(CONTINUATION, END_HEADERS, 1, b"ad");
        frames.follow(&last[..last.len() - 1]).unwrap();
        assert!(frames.in_head(), "all of it must come");
        frames.follow(&last[last.len() - 1..]).unwrap();
        assert!(!frames.in_head());
    }
}
