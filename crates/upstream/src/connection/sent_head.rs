//! Head of a request as the HTTP library wrote it, from which the request can be made again.
//!
//! The library takes the table of fields, empties it as it writes, and does not give it back. A copy of the table
//! would be made for every request, and is needed for the few that are sent again. The bytes that the library writes
//! are the same head: they are copied at once, into a buffer that stays with the connection, and parsed only for a
//! request that is sent again.

use http::{HeaderName, HeaderValue, Method, Request, Uri};

/// Bytes of the buffer that a connection keeps; more than most heads.
const MAX_KEPT: usize = 4096;

/// End of a head, whose last line is empty.
pub(super) const HEAD_END: &[u8] = b"\r\n\r\n";

/// Head of the request that a connection carries.
///
/// - It is the whole head: the library offers a head to the socket in one piece.
#[derive(Debug, Default)]
pub(crate) struct SentHead {
    bytes: Vec<u8>,
    /// Part of what is offered next that is kept.
    keeps: Kept,
}

/// Part of what the library offers first that is kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Kept {
    /// Nothing: the request will not be sent again.
    #[default]
    Nothing,
    /// All of it: the request has no body.
    All,
    /// The head alone: the body follows it, perhaps in the same piece.
    Head,
}

impl SentHead {
    /// Begins an exchange.
    pub(crate) fn begin(&mut self, keeps: Kept) {
        self.keeps = keeps;
        match self.bytes.capacity() {
            // A pooled connection does not hold the memory of a large head.
            MAX_KEPT.. => self.bytes = Vec::new(),
            _ => self.bytes.clear(),
        }
    }

    /// Notes what the library offers to the socket. Whether the socket takes it does not matter: the connection may
    /// have died.
    pub(crate) fn record<'b>(&mut self, offered: impl IntoIterator<Item = &'b [u8]>) {
        match std::mem::take(&mut self.keeps) {
            Kept::Nothing => {}
            Kept::All => offered.into_iter().for_each(|piece| self.bytes.extend_from_slice(piece)),
            Kept::Head => offered.into_iter().for_each(|piece| self.record_head(piece)),
        }
    }

    /// Notes a head that is offered with lines behind the library's: what comes before them, and the lines.
    pub(crate) fn record_with(&mut self, [before, lines]: [&[u8]; 2]) {
        if std::mem::take(&mut self.keeps) != Kept::Nothing {
            for piece in [before, lines, b"\r\n"] {
                self.bytes.extend_from_slice(piece);
            }
        }
    }

    /// Notes a piece up to the end of the head. The library writes a head as one piece.
    fn record_head(&mut self, piece: &[u8]) {
        if self.bytes.is_empty() {
            let end = memchr::memmem::find(piece, HEAD_END).map_or(0, |at| at + HEAD_END.len());
            self.bytes.extend_from_slice(&piece[..end]);
        }
    }

    /// Makes the request again; none when no whole head was kept.
    pub(crate) fn request(&self) -> Option<Request<()>> {
        // No line contains CR or LF: the parts of the head were checked when it was made.
        let lines = self.bytes.strip_suffix(b"\n\r\n")?;
        let mut lines = lines.split(|byte| *byte == b'\n').map(|line| line.strip_suffix(b"\r"));
        let mut first = lines.next()??.split(|byte| *byte == b' ');
        let mut request = Request::new(());
        *request.method_mut() = Method::from_bytes(first.next()?).ok()?;
        *request.uri_mut() = Uri::try_from(first.next()?).ok()?;
        for line in lines {
            let line = line?;
            let colon = memchr::memchr(b':', line)?;
            let name = HeaderName::from_bytes(&line[..colon]).ok()?;
            let value = HeaderValue::from_bytes(line.get(colon + 2..)?).ok()?;
            request.headers_mut().append(name, value);
        }
        Some(request)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use http_body_util::Empty;
    use hyper::client::conn::http1;
    use hyper_util::rt::TokioIo;
    use proptest::prelude::*;
    use tokio::io::AsyncReadExt as _;

    use super::*;

    /// Bytes that the HTTP library writes for a request without a body.
    fn written(request: Request<()>) -> Vec<u8> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let (ours, mut peer) = tokio::io::duplex(1 << 20);
            let (mut sender, connection) = http1::handshake(TokioIo::new(ours)).await.unwrap();
            tokio::spawn(connection);
            let response = tokio::spawn(sender.send_request(request.map(|()| Empty::<bytes::Bytes>::new())));
            let mut bytes = Vec::new();
            while !bytes.ends_with(HEAD_END) {
                peer.read_buf(&mut bytes).await.unwrap();
            }
            drop(peer);
            assert!(tokio::time::timeout(Duration::from_secs(60), response).await.unwrap().unwrap().is_err());
            bytes
        })
    }

    fn sent(pieces: &[&[u8]]) -> SentHead {
        let mut sent = SentHead::default();
        sent.begin(Kept::All);
        sent.record(pieces.iter().copied());
        sent
    }

    fn parts(request: &Request<()>) -> (String, String, Vec<(String, Vec<u8>)>) {
        let fields = request.headers().iter().map(|(name, value)| (name.to_string(), value.as_bytes().to_vec()));
        (request.method().to_string(), request.uri().to_string(), fields.collect())
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn request_is_made_again_from_what_was_written(
            method in prop_oneof![Just("GET"), Just("DELETE"), Just("PUT"), Just("OPTIONS"), Just("PROPFIND")],
            target in prop_oneof![Just("*".to_owned()), "/[a-z/.%?=&:@|~{}\\[\\]-]{0,40}"],
            fields in proptest::collection::vec(
                ("[a-z][a-z0-9_-]{0,12}", proptest::collection::vec(prop_oneof![32..=126_u8, 128..=255_u8, Just(9)],
                    0..40)),
                0..20,
            ),
        ) {
            let mut request = Request::new(());
            *request.method_mut() = method.parse().unwrap();
            *request.uri_mut() = Uri::try_from(target).unwrap();
            // Their meaning is that of the connection, which the gateway does not forward.
            let kept = |name: &str| !["connection", "te", "upgrade",
                "trailer"].contains(&name) && !name.contains("length");
            for (name, value) in fields.into_iter().filter(|(name, _)| kept(name)) {
                request.headers_mut().append(name.parse::<HeaderName>().unwrap(), HeaderValue::from_bytes(&value)
                    .unwrap());
            }
            let expected = parts(&request);
            let bytes = written(request);
            let again = sent(&[&bytes]).request().expect("a whole head");
            prop_assert_eq!(parts(&again), expected);
            prop_assert_eq!(written(again), bytes);
        }
    }

    #[test]
    fn part_of_a_head_makes_no_request() {
        let head = b"GET / HTTP/1.1\r\nhost: a\r\n\r\n";
        assert!(sent(&[&head[..9], &head[9..]]).request().is_some());
        assert!((0..head.len()).all(|length| sent(&[&head[..length]]).request().is_none()));
    }

    #[test]
    fn head_before_a_body_is_kept_alone() {
        let head = b"PUT / HTTP/1.1\r\ncontent-length: 8\r\n\r\n";
        let of = |pieces: &[&[u8]]| {
            let mut sent = SentHead::default();
            sent.begin(Kept::Head);
            sent.record(pieces.iter().copied());
            sent.request().map(|request| parts(&request))
        };
        let expected = of(&[head]).expect("a whole head");
        assert_eq!(of(&[head, b"\r\n\r\nbody"]), Some(expected.clone()), "in two pieces");
        assert_eq!(of(&[&[&head[..], b"a\r\n\r\nbcd"].concat()]), Some(expected), "in one piece");
        assert_eq!(of(&[&head[..20], &head[20..]]), None);
    }

    #[test]
    fn only_the_head_of_this_exchange_is_kept_and_only_when_wanted() {
        let mut sent = sent(&[b"GET /1 HTTP/1.1\r\n\r\n"]);
        sent.record([&b"more"[..]]);
        assert_eq!(sent.request().unwrap().uri(), "/1");
        sent.begin(Kept::Nothing);
        sent.record([&b"GET /2 HTTP/1.1\r\n\r\n"[..]]);
        assert!(sent.request().is_none());
        sent.begin(Kept::All);
        sent.record([&b"GET /3 HTTP/1.1\r\nx: "[..], &[b'x'; MAX_KEPT], HEAD_END]);
        assert_eq!(sent.request().unwrap().uri(), "/3");
        sent.begin(Kept::All);
        assert_eq!(sent.bytes.capacity(), 0, "the memory of a large head is given back");
    }
}
