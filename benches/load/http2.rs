//! Requests over HTTP/2, written and read frame by frame, so that the load costs much less than a proxy.
//!
//! The fields of the first request enter the peer's dynamic table, as those of real clients do; later requests name
//! them by their index. Responses are small: the connection's window, widened at the beginning, lasts for all of them.

use std::collections::HashMap;
use std::time::Instant;

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};

use super::microseconds;

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const WINDOW_UPDATE: u8 = 8;
const ACK: u8 = 1;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;

/// `:method: GET` and `:scheme: http` of the static table.
const GET: [u8; 2] = [0x82, 0x86];
/// `:method: POST`, and the same scheme.
const POST: [u8; 2] = [0x83, 0x86];
/// `:status: 200` of the static table.
const STATUS_200: u8 = 0x88;
/// Index of the newest entry of the dynamic table.
const NEWEST: u8 = 62;
/// Field of an admitted request, in the answer to a call.
const IDENTITY: &[u8] = b"x-user-id";
/// A field that is named by its index.
const INDEXED: u8 = 0x80;

/// A connection with requests of one key.
pub(crate) struct Connection<S> {
    stream: S,
    /// The next request's header block.
    block: Vec<u8>,
    /// The block of all requests after the first.
    later: Vec<u8>,
    /// Message of each call of gRPC; empty for requests without a body.
    message: Vec<u8>,
    /// True once the call in flight was answered with an identity.
    is_admitted: bool,
    next_stream: u32,
    out: Vec<u8>,
    read: Vec<u8>,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Connection<S> {
    /// Sends the preface.
    pub(crate) async fn open(stream: S, key: &str) -> Self {
        let authorization = format!("Bearer {key}");
        // Names by their index in the static table.
        let fields: [(&[u8], &str); 5] = [
            (&[0x40 | 4], "/api/queries?limit=20"),
            (&[0x40 | 1], "bench.test"),
            (&[0x40 | 58], "bench/1"),
            (&[0x40 | 19], "*/*"),
            (&[0x40 | 23], &authorization),
        ];
        Self::begin(stream, GET, fields, Vec::new()).await
    }

    /// The same for calls of gRPC, one in flight at a time, each with this message. An answer must name a user.
    pub(crate) async fn open_calls(stream: S, path: &str, message: Vec<u8>) -> Self {
        let fields: [(&[u8], &str); 4] = [
            (&[0x40 | 4], path),
            (&[0x40 | 1], "keygate"),
            (b"\x40\x02te", "trailers"),
            (&[0x40 | 31], "application/grpc"),
        ];
        Self::begin(stream, POST, fields, message).await
    }

    /// Sends the preface. Each field is the representation of its name, with incremental indexing, and its value.
    async fn begin<const N: usize>(
        mut stream: S,
        method_and_scheme: [u8; 2],
        fields: [(&[u8], &str); N],
        message: Vec<u8>,
    ) -> Self {
        let (mut block, mut later) = (method_and_scheme.to_vec(), method_and_scheme.to_vec());
        for (entries_after, (name, value)) in (0..N).rev().zip(fields) {
            let length = u8::try_from(value.len()).ok().filter(|length| *length < 127).expect("short values");
            block.extend(name);
            block.push(length);
            block.extend(value.as_bytes());
            later.push(INDEXED | (NEWEST + u8::try_from(entries_after).expect("few fields")));
        }
        let mut out = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
        frame(&mut out, SETTINGS, 0, 0, &[]);
        frame(&mut out, WINDOW_UPDATE, 0, 0, &((1_u32 << 31) - 1 - 65_535).to_be_bytes());
        stream.write_all(&out).await.unwrap();
        let (out, read) = (Vec::new(), Vec::new());
        Self { stream, block, later, message, is_admitted: false, next_stream: 1, out, read }
    }

    /// Sends requests, at most `streams` in flight, and adds their microseconds to `times`.
    pub(crate) async fn requests(&mut self, requests: usize, streams: usize, times: &mut Vec<u32>) {
        let mut begun = HashMap::new();
        let (mut left, mut answered) = (requests, 0);
        while answered < requests {
            while left > 0 && begun.len() < streams {
                begun.insert(self.request(), Instant::now());
                left -= 1;
            }
            if !self.out.is_empty() {
                self.stream.write_all(&self.out).await.unwrap();
                self.stream.flush().await.unwrap();
                self.out.clear();
            }
            let read = self.stream.read_buf(&mut self.read).await.unwrap();
            assert!(read > 0, "the proxy closed");
            for ended in self.take_frames() {
                let begun: Instant = begun.remove(&ended).expect("an answer to a request");
                times.push(microseconds(begun));
                answered += 1;
            }
        }
    }

    /// Adds a request to what is written next; returns its stream.
    fn request(&mut self) -> u32 {
        let stream = self.next_stream;
        self.next_stream += 2;
        if self.message.is_empty() {
            frame(&mut self.out, HEADERS, END_STREAM | END_HEADERS, stream, &self.block);
        } else {
            frame(&mut self.out, HEADERS, END_HEADERS, stream, &self.block);
            frame(&mut self.out, DATA, END_STREAM, stream, &self.message);
        }
        if stream == 1 {
            self.block = std::mem::take(&mut self.later);
        }
        stream
    }

    /// Takes all whole frames; returns the streams that have ended.
    fn take_frames(&mut self) -> Vec<u32> {
        let (mut at, mut ended) = (0, Vec::new());
        while let Some([high, middle, low, kind, flags, stream @ ..]) = self.read[at..].first_chunk::<9>().copied() {
            let length = u32::from_be_bytes([0, high, middle, low]) as usize;
            let Some(payload) = self.read.get(at + 9..at + 9 + length) else { break };
            let stream = u32::from_be_bytes(stream);
            match kind {
                // Trailers.
                HEADERS if !self.message.is_empty() && flags & END_STREAM != 0 => {
                    assert!(std::mem::take(&mut self.is_admitted), "the call is not admitted: {payload:?}");
                }
                DATA if !self.message.is_empty() => {
                    self.is_admitted = payload.windows(IDENTITY.len()).any(|name| name == IDENTITY);
                }
                // A change of the table's size may come before the status.
                HEADERS => assert!(payload.iter().take(8).any(|byte| *byte == STATUS_200), "{payload:?}"),
                SETTINGS if flags & ACK == 0 => frame(&mut self.out, SETTINGS, ACK, 0, &[]),
                PING if flags & ACK == 0 => frame(&mut self.out, PING, ACK, 0, payload),
                DATA | SETTINGS | PING | WINDOW_UPDATE => {}
                other => panic!("a frame of type {other} with {payload:?}"),
            }
            if matches!(kind, DATA | HEADERS) && flags & END_STREAM != 0 {
                ended.push(stream);
            }
            at += 9 + length;
        }
        self.read.drain(..at);
        ended
    }
}

fn frame(out: &mut Vec<u8>, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
    let [_, length @ ..] = u32::try_from(payload.len()).expect("a short frame").to_be_bytes();
    out.extend(length);
    out.extend([kind, flags]);
    out.extend(stream.to_be_bytes());
    out.extend(payload);
}
