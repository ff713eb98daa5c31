//! Scanner of HTTP/2 frames (RFC 9113, section 4.1): counts those that ask for nothing, and sees whether a head is on
//! its way.
//!
//! The HTTP library limits what it keeps: streams that were reset and not accepted yet, streams that it had to reset
//! itself, CONTINUATION frames of one head, DATA frames of a few bytes or of padding. Idle work remains: PING and
//! SETTINGS that must be answered, empty frames, priorities, resets. A client has an allowance for such frames, which
//! its requests and the responses to it refill. A client that exceeds it floods the connection.

use tokio::time::Instant;

/// Bytes of the connection preface before the first frame (section 3.4).
const PREFACE: usize = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".len();
/// Bytes of a frame's header.
const HEADER: usize = 9;

/// Idle frames that a client may send at any time: a burst for each change of its settings, or keep-alives. Beside them
/// it may reset all its streams at once, as a proxy does whose own clients go away.
const ALLOWANCE: u32 = 200;
/// Credit for a second.
const PER_SECOND: u32 = 20;
/// Credit for a request: its priority and its window updates.
const PER_REQUEST: u32 = 2;
/// Credit for a piece of a response: a PING and a WINDOW_UPDATE.
const PER_PIECE: u32 = 2;
/// Cost of a reset: more than its request has earned, so that requests that are all reset are a flood, too.
const RESET: u32 = 4;
/// Bytes of responses that pay for one WINDOW_UPDATE.
const BYTES_PER_UPDATE: u64 = 512;

// Types and flags of frames (section 6).
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const WINDOW_UPDATE: u8 = 8;
const CONTINUATION: u8 = 9;
const END_STREAM: u8 = 0x1;
const END_HEADERS: u8 = 0x4;

/// Progress of the scan of a client's frames, and what is left of its allowance.
#[derive(Debug)]
pub struct FrameScanner {
    /// Bytes to skip before the next frame's header: of the preface, then of payloads.
    skip: usize,
    header: [u8; HEADER],
    /// Bytes of `header` that have come.
    header_length: usize,
    /// True if a head has begun whose last frame has not.
    in_head: bool,
    /// True if `skip` counts a head's payload.
    in_head_payload: bool,
    highest_stream: u32,
    /// The most that `allowance` can be.
    max_allowance: u32,
    allowance: u32,
    refilled: Instant,
    /// Bytes that were sent and have not paid for a WINDOW_UPDATE yet.
    sent: u64,
}

/// The client has exceeded its allowance of idle frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flood;

impl FrameScanner {
    /// The scanner of a connection that may have `max_streams` concurrent streams.
    pub fn new(max_streams: u32) -> Self {
        let max_allowance = ALLOWANCE.saturating_add(max_streams.saturating_mul(RESET));
        Self {
            skip: PREFACE,
            header: [0; HEADER],
            header_length: 0,
            in_head: false,
            in_head_payload: false,
            highest_stream: 0,
            max_allowance,
            allowance: max_allowance,
            refilled: Instant::now(),
            sent: 0,
        }
    }

    /// Scans bytes that have come from the client.
    pub fn scan(&mut self, mut bytes: &[u8]) -> Result<(), Flood> {
        while !bytes.is_empty() {
            let skip = self.skip.min(bytes.len());
            self.skip -= skip;
            bytes = &bytes[skip..];
            let take = (HEADER - self.header_length).min(bytes.len());
            self.header[self.header_length..self.header_length + take].copy_from_slice(&bytes[..take]);
            self.header_length += take;
            bytes = &bytes[take..];
            if self.header_length == HEADER {
                self.header_length = 0;
                self.account_frame()?;
            }
        }
        Ok(())
    }

    /// Credits bytes that were sent to the client: it makes room for more with WINDOW_UPDATE frames.
    pub fn credit_sent(&mut self, bytes: usize) {
        self.sent = self.sent.saturating_add(bytes as u64);
    }

    /// Credits pieces of responses that were sent. For each the client may send a PING, to measure how long the piece
    /// takes, and a WINDOW_UPDATE: some clients adapt their windows to the network in this way.
    pub fn credit_pieces(&mut self, pieces: u32) {
        self.credit(pieces.saturating_mul(PER_PIECE));
    }

    /// True if a head has begun and is not complete.
    pub fn in_head(&self) -> bool {
        self.in_head || (self.in_head_payload && self.skip > 0)
    }

    /// The highest stream of which a head has begun.
    pub fn highest_stream(&self) -> u32 {
        self.highest_stream
    }

    /// Accounts for the frame whose header is complete, and skips its payload.
    fn account_frame(&mut self) -> Result<(), Flood> {
        let [a, b, c, kind, flags, stream @ ..] = self.header;
        let length = u32::from_be_bytes([0, a, b, c]);
        self.skip = usize::try_from(length).unwrap_or(usize::MAX);
        self.in_head_payload = matches!(kind, HEADERS | CONTINUATION);
        match kind {
            HEADERS => {
                self.in_head = flags & END_HEADERS == 0;
                self.highest_stream = self.highest_stream.max(u32::from_be_bytes(stream) & 0x7fff_ffff);
                self.credit(PER_REQUEST);
                Ok(())
            }
            CONTINUATION => {
                self.in_head = flags & END_HEADERS == 0;
                // The library limits those that carry something.
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

    fn credit(&mut self, frames: u32) {
        self.allowance = self.allowance.saturating_add(frames).min(self.max_allowance);
    }

    fn spend(&mut self, cost: u32) -> Result<(), Flood> {
        // The clock is read only when the allowance is used up.
        if self.allowance < cost {
            let seconds = u32::try_from(self.refilled.elapsed().as_secs()).unwrap_or(u32::MAX);
            if seconds > 0 {
                self.refilled = Instant::now();
                self.credit(seconds.saturating_mul(PER_SECOND));
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

    fn started() -> FrameScanner {
        let mut frames = FrameScanner::new(STREAMS);
        frames.scan(&[0; PREFACE]).unwrap();
        frames
    }

    #[test]
    fn floods_of_every_kind_are_detected() {
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
            // Frames come in pieces of any size.
            assert!(flood.chunks(7).all(|piece| frames.scan(piece).is_ok()), "{kind}");
            assert_eq!(frames.scan(&frame(kind, 0, 1, payload)), Err(Flood), "{kind}");
        }
    }

    #[test]
    fn requests_that_are_all_reset_are_a_flood() {
        let mut frames = started();
        let mut resets = (0..1000).map(|stream| {
            frames.scan(&frame(HEADERS, END_HEADERS, stream * 2 + 1, b"head")).unwrap();
            frames.scan(&frame(RST_STREAM, 0, stream * 2 + 1, &[0; 4]))
        });
        assert!(resets.any(|scanned| scanned == Err(Flood)));
    }

    #[test]
    fn resets_of_all_streams_at_once_are_no_flood() {
        let mut frames = started();
        for _ in 0..20 {
            for stream in 0..STREAMS {
                frames.scan(&frame(HEADERS, END_HEADERS, stream * 2 + 1, b"head")).unwrap();
            }
            for stream in 0..STREAMS {
                frames.scan(&frame(RST_STREAM, 0, stream * 2 + 1, &[0; 4])).unwrap();
            }
            // Between two such bursts as many requests are served.
            for stream in 0..STREAMS {
                frames.scan(&frame(HEADERS, END_HEADERS, stream * 2 + 1, b"head")).unwrap();
            }
        }
    }

    #[test]
    fn frames_of_ordinary_requests_are_no_flood() {
        let mut frames = started();
        for stream in 0..10_000 {
            frames.scan(&frame(HEADERS, END_HEADERS, stream * 2 + 1, b"head")).unwrap();
            frames.scan(&frame(DATA, 0, stream * 2 + 1, b"body")).unwrap();
            frames.scan(&frame(DATA, END_STREAM, stream * 2 + 1, b"")).unwrap();
            if stream % 3 == 0 {
                frames.scan(&frame(RST_STREAM, 0, stream * 2 + 1, &[0; 4])).unwrap();
            }
            frames.credit_sent(2 * BYTES_PER_UPDATE as usize);
            frames.scan(&frame(WINDOW_UPDATE, 0, 0, &[0, 0, 0, 1]).repeat(2)).unwrap();
        }
        assert_eq!(frames.highest_stream(), 19_999);
    }

    #[test]
    fn pings_for_each_piece_of_a_response_are_no_flood() {
        let mut frames = started();
        for _ in 0..10_000 {
            frames.credit_pieces(1);
            frames.scan(&frame(6, 0, 0, &[0; 8])).unwrap();
            frames.scan(&frame(WINDOW_UPDATE, 0, 0, &[0, 0, 0, 1])).unwrap();
        }
    }

    #[test]
    fn incomplete_heads_are_detected() {
        let mut frames = started();
        frames.scan(&frame(HEADERS, 0, 1, b"he")).unwrap();
        assert!(frames.in_head());
        let last = frame(CONTINUATION, END_HEADERS, 1, b"ad");
        frames.scan(&last[..last.len() - 1]).unwrap();
        assert!(frames.in_head(), "all of the last frame must come");
        frames.scan(&last[last.len() - 1..]).unwrap();
        assert!(!frames.in_head());
    }
}
