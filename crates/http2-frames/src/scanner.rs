//! Scanner of the frames that one side of a connection sends.

use super::FrameError;
use super::allowance::Allowance;
use super::boundaries::{
    Boundaries, CONTINUATION, DATA, END_HEADERS, END_STREAM, FrameHeader, GOAWAY, HEADERS, PADDED, PRIORITY,
    RST_STREAM, WINDOW_UPDATE,
};
use super::field::Field;
use super::head_block::HeadBlock;
use super::interim::{ANSWERED, InterimResponses};

/// Bytes of a client's connection preface before its first frame (section 3.4).
const PREFACE: usize = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".len();

/// Idle frames that a peer may send at any time: a burst for each change of its settings, or keep-alives. Beside them
/// a client may reset all its streams at once, as a proxy does whose own clients go away.
const ALLOWANCE: u32 = 200;
/// Credit that an upstream may save up: it may answer the frames of a whole window at once.
const MAX_OF_UPSTREAM: u32 = 10_000;
/// Credit for a request: a client's priority and window updates, or an upstream's answer, which may be a reset.
const PER_REQUEST: u32 = 2;
/// Credit for a piece of a response's body: a PING and a WINDOW_UPDATE of the client.
const PER_PIECE: u32 = 2;
/// Credit for a frame of a request's body: an upstream's PING, and WINDOW_UPDATE of the stream and the connection.
const PER_SENT_PIECE: u32 = 3;
/// Cost of a client's reset: more than its request has earned, so that requests that are all reset are a flood, too.
const RESET: u32 = 4;

/// Progress of the scan of a peer's frames, and what is left of its allowance.
#[derive(Debug)]
pub struct FrameScanner {
    peer: Peer,
    received: Boundaries,
    /// Frames that were sent to an upstream.
    sent: Boundaries,
    frame: FrameHeader,
    payload: Payload,
    head: HeadBlock,
    /// True if a head has begun whose last frame has not.
    in_head: bool,
    section: Section,
    /// Place of the flags of the head's first frame; none when they have gone to the library.
    flags_at: Option<usize>,
    /// Bytes of the payload before those of the head, and behind them.
    prefix: usize,
    padding: usize,
    highest_stream: u32,
    allowance: Allowance,
    interim: InterimResponses,
    /// Frames of responses that an upstream has sent.
    answers: u64,
}

/// Side whose frames are scanned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Peer {
    Client,
    /// Allows so many interim responses before a final one.
    Upstream {
        max_interim: u8,
    },
}

/// Payload of the current frame, as far as it matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Payload {
    Skipped,
    Head,
    /// The code of a reset, which becomes [`ANSWERED`].
    Code,
    /// GOAWAY of an upstream: it begins with the last stream that the upstream may have begun to process.
    LastStream,
}

/// Section of a message that a head is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Section {
    Request,
    Trailers,
    /// Head or trailers of a response.
    Response,
}

impl FrameScanner {
    /// The scanner of a client's connection that may have `max_streams` concurrent streams.
    pub fn of_client(max_streams: u32) -> Self {
        let allowance = ALLOWANCE.saturating_add(max_streams.saturating_mul(RESET));
        Self::new(Peer::Client, PREFACE, Allowance::new(allowance, allowance))
    }

    /// The scanner of an upstream's connection. A response may have so many interim ones before it.
    pub fn of_upstream(max_interim: u8) -> Self {
        Self::new(Peer::Upstream { max_interim }, 0, Allowance::new(ALLOWANCE, MAX_OF_UPSTREAM))
    }

    fn new(peer: Peer, preface: usize, allowance: Allowance) -> Self {
        Self {
            peer,
            received: Boundaries::new(preface),
            sent: Boundaries::new(PREFACE),
            frame: FrameHeader::default(),
            payload: Payload::Skipped,
            in_head: false,
            head: HeadBlock::new(),
            section: Section::Request,
            flags_at: None,
            prefix: 0,
            padding: 0,
            highest_stream: 0,
            allowance,
            interim: InterimResponses::default(),
            answers: 0,
        }
    }

    /// Scans bytes that have come from the peer, and changes what the library is to refuse.
    ///
    /// # Errors
    /// The connection must end, and the bytes not go to the library.
    pub fn scan(&mut self, bytes: &mut [u8]) -> Result<(), FrameError> {
        let mut at = 0;
        while at < bytes.len() {
            if self.received.left > 0 {
                let end = at + self.received.left.min(bytes.len() - at);
                self.scan_payload(bytes, at, end)?;
                self.received.left -= end - at;
                at = end;
            } else if let Some(frame) = self.received.read_header(bytes, &mut at) {
                self.begin_frame(frame)?;
            }
        }
        self.flags_at = None;
        self.head.forget_position();
        Ok(())
    }

    /// Notes bytes that were sent to an upstream: requests and bodies earn it idle frames. Returns the resets.
    pub fn note_sent(&mut self, bytes: &[u8]) -> usize {
        self.allowance.credit_sent(bytes.len());
        let (mut at, mut resets) = (0, 0);
        while at < bytes.len() {
            if self.sent.left > 0 {
                let take = self.sent.left.min(bytes.len() - at);
                self.sent.left -= take;
                at += take;
            } else if let Some(frame) = self.sent.read_header(bytes, &mut at) {
                match frame.kind {
                    HEADERS => self.allowance.credit(PER_REQUEST),
                    DATA if frame.length > 0 => self.allowance.credit(PER_SENT_PIECE),
                    RST_STREAM => {
                        resets += 1;
                        self.interim.end(frame.stream);
                    }
                    _ => {}
                }
            }
        }
        resets
    }

    /// Credits bytes that were sent to the peer: it makes room for more with WINDOW_UPDATE frames.
    pub fn credit_sent(&mut self, bytes: usize) {
        self.allowance.credit_sent(bytes);
    }

    /// Credits pieces of responses that were sent. For each the client may send a PING and a WINDOW_UPDATE.
    pub fn credit_pieces(&mut self, pieces: u32) {
        self.allowance.credit(pieces.saturating_mul(PER_PIECE));
    }

    /// True if a head has begun and is not complete.
    pub fn in_head(&self) -> bool {
        self.in_head || (self.payload == Payload::Head && self.received.left > 0)
    }

    /// The highest stream of which a head has begun.
    pub fn highest_stream(&self) -> u32 {
        self.highest_stream
    }

    /// Frames of responses that the upstream has sent so far.
    pub fn answers(&self) -> u64 {
        self.answers
    }

    /// Returns whether some response has begun with an interim one and has no final one yet.
    pub fn has_interim(&self) -> bool {
        self.interim.highest().is_some()
    }

    /// Accounts for the frame whose header is complete.
    fn begin_frame(&mut self, frame: FrameHeader) -> Result<(), FrameError> {
        (self.frame, self.payload) = (frame, Payload::Skipped);
        let is_client = self.peer == Peer::Client;
        match frame.kind {
            HEADERS => {
                self.begin_head(frame);
                Ok(())
            }
            CONTINUATION => {
                (self.payload, self.prefix, self.padding) = (Payload::Head, 0, 0);
                self.in_head = frame.flags & END_HEADERS == 0;
                // The library limits those that carry something.
                if frame.length > 0 { Ok(()) } else { self.allowance.spend(1) }
            }
            DATA if frame.length > 0 || frame.flags & END_STREAM != 0 => {
                self.answers += 1;
                Ok(())
            }
            WINDOW_UPDATE => self.allowance.spend_update(),
            RST_STREAM if is_client => self.allowance.spend(RESET),
            RST_STREAM => {
                if self.interim.end(frame.stream) {
                    self.payload = Payload::Code;
                }
                self.allowance.spend(1)
            }
            GOAWAY if !is_client => {
                self.payload = Payload::LastStream;
                self.allowance.spend(1)
            }
            _ => self.allowance.spend(1),
        }
    }

    fn begin_head(&mut self, frame: FrameHeader) {
        self.payload = Payload::Head;
        self.in_head = frame.flags & END_HEADERS == 0;
        self.flags_at = frame.flags_at;
        // The priority is a stream and a weight.
        self.prefix = usize::from(frame.flags & PADDED != 0) + if frame.flags & PRIORITY != 0 { 5 } else { 0 };
        self.padding = 0;
        self.section = match self.peer {
            Peer::Upstream { .. } => Section::Response,
            Peer::Client if frame.stream > self.highest_stream => Section::Request,
            Peer::Client => Section::Trailers,
        };
        self.highest_stream = self.highest_stream.max(frame.stream);
        match self.peer {
            Peer::Client => self.allowance.credit(PER_REQUEST),
            Peer::Upstream { .. } => self.answers += 1,
        }
    }

    /// Scans bytes of a payload, of which `received.left` are left with them.
    fn scan_payload(&mut self, bytes: &mut [u8], at: usize, end: usize) -> Result<(), FrameError> {
        let offset = self.frame.length.saturating_sub(self.received.left);
        match self.payload {
            Payload::Skipped => Ok(()),
            Payload::Head => self.scan_head(bytes, at, end),
            Payload::Code => {
                let code = ANSWERED.to_be_bytes();
                bytes[at..end].iter_mut().zip(code.iter().skip(offset)).for_each(|(byte, of_code)| *byte = *of_code);
                Ok(())
            }
            Payload::LastStream if offset == 0 => self.interim.raise_last_stream(&mut bytes[at..end]),
            Payload::LastStream => Ok(()),
        }
    }

    fn scan_head(&mut self, bytes: &mut [u8], mut at: usize, end: usize) -> Result<(), FrameError> {
        let payload_end = at + self.received.left;
        while at < end && self.prefix > 0 {
            if self.frame.flags & PADDED != 0 && self.frame.length == payload_end - at {
                self.padding = usize::from(bytes[at]);
            }
            self.prefix -= 1;
            at += 1;
        }
        let head_end = payload_end.saturating_sub(self.padding).min(end);
        while let Some(field) = self.head.next_pseudo(bytes, &mut at, head_end) {
            self.check_pseudo(field, bytes)?;
        }
        Ok(())
    }

    /// Refuses a head for the pseudo-field whose last byte was scanned just now.
    fn check_pseudo(&mut self, field: Field, bytes: &mut [u8]) -> Result<(), FrameError> {
        match (self.section, field) {
            // Trailers that are not the end of their stream are malformed (section 8.1).
            (Section::Trailers, _) => {
                let flags = self.flags_at.and_then(|at| bytes.get_mut(at)).ok_or(FrameError::Malformed)?;
                *flags &= !END_STREAM;
                Ok(())
            }
            (Section::Request, Field::OtherScheme) | (Section::Response, Field::Switch) => self.head.spoil(bytes),
            (Section::Response, Field::Interim) => {
                let Peer::Upstream { max_interim } = self.peer else { unreachable!("clients send no responses") };
                if self.interim.count(self.frame.stream, max_interim) { Ok(()) } else { self.head.spoil(bytes) }
            }
            (Section::Response, Field::Status) => {
                self.interim.end(self.frame.stream);
                Ok(())
            }
            _ => Ok(()),
        }
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
        let mut frames = FrameScanner::of_client(STREAMS);
        frames.scan(&mut [0; PREFACE]).unwrap();
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
            let mut flood = frame(kind, 0, 1, payload).repeat((ALLOWANCE + STREAMS * RESET) as usize);
            // Frames come in pieces of any size.
            assert!(flood.chunks_mut(7).all(|piece| frames.scan(piece).is_ok()), "{kind}");
            assert_eq!(frames.scan(&mut frame(kind, 0, 1, payload)), Err(FrameError::Flood), "{kind}");
        }
    }

    #[test]
    fn requests_that_are_all_reset_are_a_flood() {
        let mut frames = started();
        let mut resets = (0..1000).map(|stream| {
            frames.scan(&mut frame(HEADERS, END_HEADERS, stream * 2 + 1, b"head")).unwrap();
            frames.scan(&mut frame(RST_STREAM, 0, stream * 2 + 1, &[0; 4]))
        });
        assert!(resets.any(|scanned| scanned == Err(FrameError::Flood)));
    }

    #[test]
    fn resets_of_all_streams_at_once_are_no_flood() {
        let mut frames = started();
        for _ in 0..20 {
            for stream in 0..STREAMS {
                frames.scan(&mut frame(HEADERS, END_HEADERS, stream * 2 + 1, b"head")).unwrap();
            }
            for stream in 0..STREAMS {
                frames.scan(&mut frame(RST_STREAM, 0, stream * 2 + 1, &[0; 4])).unwrap();
            }
            // Between two such bursts as many requests are served.
            for stream in 0..STREAMS {
                frames.scan(&mut frame(HEADERS, END_HEADERS, stream * 2 + 1, b"head")).unwrap();
            }
        }
    }

    #[test]
    fn frames_of_ordinary_requests_are_no_flood() {
        let mut frames = started();
        for stream in 0..10_000 {
            frames.scan(&mut frame(HEADERS, END_HEADERS, stream * 2 + 1, b"head")).unwrap();
            frames.scan(&mut frame(DATA, 0, stream * 2 + 1, b"body")).unwrap();
            frames.scan(&mut frame(DATA, END_STREAM, stream * 2 + 1, b"")).unwrap();
            if stream % 3 == 0 {
                frames.scan(&mut frame(RST_STREAM, 0, stream * 2 + 1, &[0; 4])).unwrap();
            }
            frames.credit_sent(2 * 512);
            frames.scan(&mut frame(WINDOW_UPDATE, 0, 0, &[0, 0, 0, 1]).repeat(2)).unwrap();
        }
        assert_eq!(frames.highest_stream(), 19_999);
    }

    #[test]
    fn pings_for_each_piece_of_a_response_are_no_flood() {
        let mut frames = started();
        for _ in 0..10_000 {
            frames.credit_pieces(1);
            frames.scan(&mut frame(6, 0, 0, &[0; 8])).unwrap();
            frames.scan(&mut frame(WINDOW_UPDATE, 0, 0, &[0, 0, 0, 1])).unwrap();
        }
    }

    #[test]
    fn incomplete_heads_are_detected() {
        let mut frames = started();
        frames.scan(&mut frame(HEADERS, 0, 1, b"he")).unwrap();
        assert!(frames.in_head());
        let mut last = frame(CONTINUATION, END_HEADERS, 1, b"ad");
        let length = last.len();
        frames.scan(&mut last[..length - 1]).unwrap();
        assert!(frames.in_head(), "all of the last frame must come");
        frames.scan(&mut last[length - 1..]).unwrap();
        assert!(!frames.in_head());
    }

    fn of_upstream() -> FrameScanner {
        FrameScanner::of_upstream(2)
    }

    /// Scans frames in one piece; returns them as the library gets them.
    fn scanned(frames: &mut FrameScanner, parts: &[Vec<u8>]) -> Vec<u8> {
        let mut bytes = parts.concat();
        frames.scan(&mut bytes).unwrap();
        bytes
    }

    const HINT: &[u8] = b"\x08\x03103";

    #[test]
    fn padding_and_priority_are_no_part_of_a_head() {
        let mut frames = started();
        let payload = [&[3][..], &[0, 0, 0, 0, 9], b"\x04\x02/#", &[4; 3]].concat();
        let mut bytes = frame(HEADERS, END_HEADERS | PADDED | PRIORITY, 1, &payload);
        for piece in bytes.chunks_mut(1) {
            frames.scan(piece).unwrap();
        }
        assert_eq!(&bytes[9 + 6..], b"\x04\x02/>\x04\x04\x04");
        assert!(!frames.in_head());
    }

    #[test]
    fn trailers_with_a_pseudo_field_lose_the_end_of_their_stream() {
        let mut frames = started();
        let head = frame(HEADERS, END_HEADERS, 1, &[0x84]);
        let trailers = frame(HEADERS, END_HEADERS | END_STREAM, 1, &[0x84]);
        let bytes = scanned(&mut frames, &[head.clone(), trailers.clone()]);
        assert_eq!(bytes[..head.len()], head);
        assert_eq!(bytes[head.len() + 4], END_HEADERS);
        let (first, rest) = trailers.split_at(5);
        frames.scan(&mut first.to_vec()).unwrap();
        assert_eq!(frames.scan(&mut rest.to_vec()), Err(FrameError::Malformed), "the flags have gone");
    }

    #[test]
    fn reset_behind_an_interim_response_has_a_code_of_its_own() {
        let reset = |stream| frame(RST_STREAM, 0, stream, &7_u32.to_be_bytes());
        let mut frames = of_upstream();
        assert_eq!(scanned(&mut frames, &[reset(1)]), reset(1));
        let mut hint = frame(HEADERS, END_HEADERS, 3, HINT);
        frames.scan(&mut hint).unwrap();
        assert!(frames.has_interim());
        let mut bytes = [reset(5), reset(3)].concat();
        bytes.chunks_mut(3).for_each(|piece| frames.scan(piece).unwrap());
        assert_eq!(bytes[..13], reset(5));
        assert_eq!(bytes[22..], ANSWERED.to_be_bytes());
        assert!(!frames.has_interim());
    }

    #[test]
    fn goaway_excludes_no_stream_that_was_answered() {
        let goaway = |last: u32| frame(GOAWAY, 0, 0, &[last.to_be_bytes(), [0; 4]].concat());
        let mut frames = of_upstream();
        assert_eq!(scanned(&mut frames, &[goaway(1)]), goaway(1));
        frames.scan(&mut frame(HEADERS, END_HEADERS, 3, HINT)).unwrap();
        assert_eq!(scanned(&mut frames, &[goaway(1), goaway(5)]), [goaway(3), goaway(5)].concat());
        let mut final_head = frame(HEADERS, END_HEADERS, 3, &[0x88]);
        frames.scan(&mut final_head).unwrap();
        assert_eq!(scanned(&mut frames, &[goaway(1)]), goaway(1));
    }

    #[test]
    fn interim_responses_are_counted_for_each_stream() {
        let hint = |stream| frame(HEADERS, END_HEADERS, stream, HINT);
        let mut frames = of_upstream();
        let harmless = [hint(1), hint(3), hint(1), hint(3)];
        assert_eq!(scanned(&mut frames, &harmless), harmless.concat());
        assert_eq!(scanned(&mut frames, &[hint(3)]), frame(HEADERS, END_HEADERS, 3, b"\x01\x03103"));
        // A stream that the gateway has reset is forgotten.
        assert_eq!(frames.note_sent(&[&[0; PREFACE], &frame(RST_STREAM, 0, 1, &[0; 4])[..]].concat()), 1);
        assert!(!frames.has_interim());
    }

    #[test]
    fn upstream_is_credited_for_requests_and_the_pieces_of_their_bodies() {
        let mut frames = of_upstream();
        frames.note_sent(&[0; PREFACE]);
        for stream in 0..10_000 {
            let sent =
                [frame(HEADERS, END_HEADERS, stream * 2 + 1, b"head"), frame(DATA, 0, stream * 2 + 1, b"x")].concat();
            assert_eq!(sent.chunks(5).map(|piece| frames.note_sent(piece)).sum::<usize>(), 0);
            let ping = frame(6, 0, 0, &[0; 8]);
            let update = frame(WINDOW_UPDATE, 0, 0, &[0, 0, 0, 1]);
            let refused = frame(RST_STREAM, 0, stream * 2 + 1, &7_u32.to_be_bytes());
            scanned(&mut frames, &[ping, update, refused]);
        }
        let mut pings = frame(6, 0, 0, &[0; 8]).repeat(MAX_OF_UPSTREAM as usize + 1);
        assert_eq!(frames.scan(&mut pings), Err(FrameError::Flood));
    }
}
