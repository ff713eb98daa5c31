//! Requests over HTTP/2, written and read frame by frame, so that the load costs much less than a proxy.
//!
//! The fields of the first request enter the peer's dynamic table, as those of real clients do; later requests name
//! them by their index. Responses are small: the connection's window, widened at the beginning, lasts for all of them.

use std::collections::HashMap;
use std::time::Instant;

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const WINDOW_UPDATE: u8 = 8;
const ACK: u8 = 1;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;

/// `:method: GET` and `:scheme: http` of the static table.
const METHOD_AND_SCHEME: [u8; 2] = [0x82, 0x86];
/// `:status: 200` of the static table.
const STATUS_200: u8 = 0x88;
/// Index of the newest entry of the dynamic table.
const NEWEST: u8 = 62;
/// A field that is named by its index.
const INDEXED: u8 = 0x80;

/// A connection with requests of one key.
pub(crate) struct Connection<S> {
    stream: S,
    /// The next request's header block.
    block: Vec<u8>,
    /// The block of all requests after the first.
    later: Vec<u8>,
    next_stream: u32,
    out: Vec<u8>,
    read: Vec<u8>,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Connection<S> {
    /// Sends the preface.
    pub(crate) async fn open(mut stream: S, key: &str) -> Self {
        let authorization = format!("Bearer {key}");
        // Names by their index in the static table, values literally, with incremental indexing.
        let fields: [(u8, &str); 5] =
            [(4, "/api/queries?limit=20"), (1, "bench.test"), (58, "bench/1"), (19, "*/*"), (23, &authorization)];
        let (mut block, mut later) = (METHOD_AND_SCHEME.to_vec(), METHOD_AND_SCHEME.to_vec());
        for (entries_after, (name, value)) in (0..5).rev().zip(fields) {
            let length = u8::try_from(value.len()).ok().filter(|length| *length < 127).expect("short values");
            block.extend([0x40 | name, length]);
            block.extend(value.as_bytes());
            later.push(INDEXED | (NEWEST + entries_after));
        }
        let mut out = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
        frame(&mut out, SETTINGS, 0, 0, &[]);
        frame(&mut out, WINDOW_UPDATE, 0, 0, &((1_u32 << 31) - 1 - 65_535).to_be_bytes());
        stream.write_all(&out).await.unwrap();
        Self { stream, block, later, next_stream: 1, out: Vec::new(), read: Vec::new() }
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
                times.push(u32::try_from(begun.elapsed().as_micros()).unwrap_or(u32::MAX));
                answered += 1;
            }
        }
    }

    /// Adds a request to what is written next; returns its stream.
    fn request(&mut self) -> u32 {
        let stream = self.next_stream;
        self.next_stream += 2;
        frame(&mut self.out, HEADERS, END_STREAM | END_HEADERS, stream, &self.block);
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
