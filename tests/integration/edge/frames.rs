//! An HTTP/2 client that sends single frames (RFC 9113), valid or not.

use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

pub const DATA: u8 = 0;
pub const HEADERS: u8 = 1;
pub const PRIORITY: u8 = 2;
pub const RST_STREAM: u8 = 3;
pub const SETTINGS: u8 = 4;
pub const PING: u8 = 6;
pub const GOAWAY: u8 = 7;
pub const WINDOW_UPDATE: u8 = 8;
pub const CONTINUATION: u8 = 9;

pub const END_STREAM: u8 = 0x1;
pub const ACK: u8 = 0x1;
pub const END_HEADERS: u8 = 0x4;
pub const PADDED: u8 = 0x8;

pub const INITIAL_WINDOW_SIZE: u16 = 4;

pub const PROTOCOL_ERROR: u32 = 1;
pub const REFUSED_STREAM: u32 = 7;
pub const CANCEL: u32 = 8;
pub const ENHANCE_YOUR_CALM: u32 = 0xb;

/// The connection preface.
pub const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// A received frame.
#[derive(Clone, Debug)]
pub struct Frame {
    pub kind: u8,
    pub flags: u8,
    pub stream: u32,
    pub payload: Vec<u8>,
}

impl Frame {
    pub fn is(&self, kind: u8, stream: u32) -> bool {
        self.kind == kind && self.stream == stream
    }

    /// True if the frame is the last one of the stream.
    pub fn ends(&self, stream: u32) -> bool {
        self.stream == stream && matches!(self.kind, DATA | HEADERS) && self.flags & END_STREAM != 0
    }

    /// The status, in the first field of a head: indexed, or with its name indexed, as every server encodes it.
    pub fn status(&self) -> u16 {
        match *self.payload {
            [indexed @ 0x88..=0x8e, ..] => [200, 204, 206, 304, 400, 404, 500][usize::from(indexed - 0x88)],
            [0x08 | 0x18 | 0x48, 3, a, b, c, ..] => std::str::from_utf8(&[a, b, c]).unwrap().parse().unwrap(),
            // Digits in Huffman code (RFC 7541, appendix B): 0, 1 and 2 have five bits, the others six.
            [0x08 | 0x18 | 0x48, length @ 0x81..=0x83, ref rest @ ..] => huffman(&rest[..usize::from(length & 0x7f)]),
            _ => panic!("no status: {:?}", self.payload),
        }
    }

    pub fn error(&self) -> u32 {
        assert!(matches!(self.kind, GOAWAY | RST_STREAM), "{self:?}");
        let code = if self.kind == GOAWAY { &self.payload[4..8] } else { &self.payload };
        u32::from_be_bytes(code.try_into().unwrap())
    }
}

/// Three digits in Huffman code.
fn huffman(bytes: &[u8]) -> u16 {
    let bits: Vec<u16> =
        bytes.iter().flat_map(|byte| (0..8).rev().map(move |bit| u16::from(byte >> bit & 1))).collect();
    let (mut at, mut status) = (0, 0);
    let mut take = |count: usize| {
        let value = bits[at..at + count].iter().fold(0, |value, bit| value << 1 | bit);
        at += count;
        value
    };
    for _ in 0..3 {
        let short = take(5);
        let digit = if short < 3 { short } else { (short << 1 | take(1)) - 0x19 + 3 };
        status = status * 10 + digit;
    }
    status
}

pub fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// A literal field without indexing (RFC 7541, section 6.2.2): it changes no table.
pub fn field(name: &str, value: &str) -> Vec<u8> {
    let length = |text: &str| u8::try_from(text.len()).ok().filter(|length| *length < 127).unwrap();
    [&[0, length(name)], name.as_bytes(), &[length(value)], value.as_bytes()].concat()
}

/// The head of a request with a bearer key, and further fields; `last` when there is no body.
pub fn head(stream: u32, method: &str, path: &str, key: &str, fields: &[(&str, &str)], last: bool) -> Vec<u8> {
    let key = format!("Bearer {key}");
    let pseudo = [(":method", method), (":scheme", "http"), (":path", path), (":authority", "gateway.test")];
    let key = [("authorization", key.as_str())];
    let all = pseudo.iter().chain(&key).chain(fields).map(|(name, value)| field(name, value));
    let flags = if last { END_HEADERS | END_STREAM } else { END_HEADERS };
    frame(HEADERS, flags, stream, &all.collect::<Vec<_>>().concat())
}

/// A request without a body.
pub fn request(stream: u32, method: &str, path: &str, key: &str) -> Vec<u8> {
    head(stream, method, path, key, &[], true)
}

/// A connection on which single frames are sent. Every read gives up after twenty seconds.
pub struct Raw {
    pub stream: TcpStream,
}

impl Raw {
    pub fn connect(address: SocketAddr) -> Self {
        Self::connect_with(address, &[])
    }

    /// Connects, with settings of its own.
    pub fn connect_with(address: SocketAddr, settings: &[(u16, u32)]) -> Self {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        stream.set_write_timeout(Some(Duration::from_secs(20))).unwrap();
        let mut raw = Self { stream };
        let settings: Vec<u8> = settings
            .iter()
            .flat_map(|(name, value)| [&name.to_be_bytes()[..], &value.to_be_bytes()].concat())
            .collect();
        raw.send([PREFACE, &frame(SETTINGS, 0, 0, &settings)].concat());
        raw
    }

    /// The same connection, when it has acknowledged the settings of the other side: from then on it sends nothing by
    /// itself.
    pub fn settled(mut self) -> Self {
        self.until(|frame| frame.kind == SETTINGS && frame.flags & ACK == 0);
        self
    }

    pub fn send(&mut self, bytes: Vec<u8>) {
        self.try_send(bytes).unwrap();
    }

    pub fn try_send(&mut self, bytes: Vec<u8>) -> io::Result<()> {
        self.stream.write_all(&bytes)
    }

    pub fn open_window(&mut self, stream: u32, bytes: u32) {
        self.send(frame(WINDOW_UPDATE, 0, stream, &bytes.to_be_bytes()));
    }

    /// Reads the next frame; `None` when the other side has closed. Acknowledges settings and pings.
    pub fn next(&mut self) -> Option<Frame> {
        let mut header = [0; 9];
        self.stream.read_exact(&mut header).map_err(closed).ok()?;
        let [a, b, c, kind, flags, stream @ ..] = header;
        let mut payload = vec![0; u32::from_be_bytes([0, a, b, c]) as usize];
        self.stream.read_exact(&mut payload).map_err(closed).ok()?;
        let received = Frame { kind, flags, stream: u32::from_be_bytes(stream), payload };
        if matches!(kind, SETTINGS | PING) && flags & ACK == 0 {
            let payload = if kind == PING { received.payload.as_slice() } else { &[] };
            self.try_send(frame(kind, ACK, 0, payload)).ok();
        }
        Some(received)
    }

    /// Reads frames until one is `wanted`; the connection must not end before.
    pub fn until(&mut self, mut wanted: impl FnMut(&Frame) -> bool) -> Frame {
        let mut seen = Vec::new();
        while let Some(frame) = self.next() {
            if wanted(&frame) {
                return frame;
            }
            seen.push((frame.kind, frame.stream, frame.flags));
        }
        panic!("the connection has ended; frames before that: {seen:?}");
    }

    /// Waits until the other side closes the connection, whatever it sends before.
    pub fn ends(&mut self) -> bool {
        while self.next().is_some() {}
        true
    }

    /// Waits for the end of the connection. Returns the error code of the last GOAWAY.
    pub fn goaway_error(&mut self) -> Option<u32> {
        let mut error = None;
        while let Some(frame) = self.next() {
            if frame.kind == GOAWAY {
                error = Some(frame.error());
            }
        }
        error
    }
}

/// Fails the test if the error is a time-out: the connection was expected to end.
fn closed(error: io::Error) {
    let ended = [io::ErrorKind::UnexpectedEof, io::ErrorKind::ConnectionReset, io::ErrorKind::BrokenPipe];
    assert!(ended.contains(&error.kind()), "the connection stays open, and nothing comes: {error}");
}
