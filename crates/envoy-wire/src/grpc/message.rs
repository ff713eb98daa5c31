//! Length-prefixed messages: a flag of one byte, four bytes of length, and the message.
//!
//! Messages and frames of HTTP/2 are not aligned: a frame may have several messages, or a piece of one.

use std::mem;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use prost::Message;

use super::Code;

/// Bytes before each message.
const PREFIX: usize = 5;

/// Reason why the bytes of a call are not messages. The call is over.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MessageError {
    /// The message is compressed, and nothing here announces that it decompresses.
    #[error("compressed messages are not supported")]
    Compressed,
    /// The first byte of a message is neither 0 nor 1.
    #[error("invalid flag of a message: {0}")]
    Flag(u8),
    /// The announced length is over the limit.
    #[error("a message of {length} bytes is over the limit of {limit}")]
    TooLarge {
        /// Announced length.
        length: u32,
        /// Limit of the reader.
        limit: usize,
    },
    /// The call ended within a message.
    #[error("the call ended within a message")]
    Truncated,
    /// The bytes are not a message of the expected type.
    #[error("invalid message: {0}")]
    Malformed(#[from] prost::DecodeError),
}

impl MessageError {
    /// The status to end the call with.
    pub fn code(&self) -> Code {
        match self {
            Self::Compressed => Code::Unimplemented,
            Self::TooLarge { .. } => Code::ResourceExhausted,
            Self::Flag(_) | Self::Truncated | Self::Malformed(_) => Code::Internal,
        }
    }
}

/// Encodes a message with its prefix, for one frame of a response.
pub fn encode_message(message: &impl Message) -> Bytes {
    let length = message.encoded_len();
    let mut encoded = Vec::with_capacity(PREFIX + length);
    encoded.put_u8(0);
    encoded.put_u32(u32::try_from(length).expect("messages of this crate have less than 4 GiB"));
    message.encode(&mut encoded).expect("a vector grows");
    encoded.into()
}

/// Reader of a call's messages: [`push`](Self::push) each frame, take messages until there is none, and call
/// [`finish`](Self::finish) when the peer has ended its side.
///
/// A message that is whole in its frame is not copied. The reader holds one frame and at most one message: memory grows
/// with the bytes that arrived, not with the length that was announced.
#[derive(Debug)]
pub struct MessageReader {
    limit: usize,
    /// Prefix and begin of a message whose end has not arrived. Its frame is empty then.
    partial: BytesMut,
    /// Rest of the last frame.
    frame: Bytes,
}

impl MessageReader {
    /// A reader of messages of at most `limit` bytes each.
    pub fn new(limit: usize) -> Self {
        Self { limit, partial: BytesMut::new(), frame: Bytes::new() }
    }

    /// Adds the data of a frame. Messages are taken before the next one is added: otherwise both are copied.
    pub fn push(&mut self, frame: Bytes) {
        self.frame = if self.frame.is_empty() { frame } else { [mem::take(&mut self.frame), frame].concat().into() };
    }

    /// Takes and decodes the next message; none when it has not arrived as a whole. After an error there is no next
    /// message.
    pub fn next_message<M: Message + Default>(&mut self) -> Result<Option<M>, MessageError> {
        Ok(self.next_bytes()?.map(M::decode).transpose()?)
    }

    /// Takes the bytes of the next message; none when it has not arrived as a whole.
    pub fn next_bytes(&mut self) -> Result<Option<Bytes>, MessageError> {
        if self.partial.is_empty()
            && let Some(length) = self.announced_length(&self.frame)?
            && self.frame.len() - PREFIX >= length
        {
            self.frame.advance(PREFIX);
            return Ok(Some(self.frame.split_to(length)));
        }
        self.fill(PREFIX);
        let Some(length) = self.announced_length(&self.partial)? else { return Ok(None) };
        self.fill(PREFIX + length);
        if self.partial.len() < PREFIX + length {
            return Ok(None);
        }
        let mut message = mem::take(&mut self.partial);
        message.advance(PREFIX);
        Ok(Some(message.freeze()))
    }

    /// Checks that no message is left, not even a part of one.
    pub fn finish(&self) -> Result<(), MessageError> {
        if self.partial.is_empty() && self.frame.is_empty() { Ok(()) } else { Err(MessageError::Truncated) }
    }

    /// Moves bytes of the frame until `partial` has `length` bytes.
    fn fill(&mut self, length: usize) {
        let missing = length.saturating_sub(self.partial.len());
        self.partial.extend_from_slice(&self.frame.split_to(missing.min(self.frame.len())));
    }

    /// The length by the prefix at the begin of `bytes`; none when the prefix is not whole.
    fn announced_length(&self, bytes: &[u8]) -> Result<Option<usize>, MessageError> {
        let Some((&[flag, a, b, c, d], _)) = bytes.split_first_chunk::<PREFIX>() else { return Ok(None) };
        match flag {
            0 => {}
            1 => return Err(MessageError::Compressed),
            _ => return Err(MessageError::Flag(flag)),
        }
        let length = u32::from_be_bytes([a, b, c, d]);
        match usize::try_from(length) {
            Ok(usable) if usable <= self.limit => Ok(Some(usable)),
            _ => Err(MessageError::TooLarge { length, limit: self.limit }),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;
    use crate::health::HealthCheckRequest;

    fn framed(messages: &[Vec<u8>]) -> Vec<u8> {
        let prefix = |message: &Vec<u8>| [&[0][..], &(message.len() as u32).to_be_bytes()[..]].concat();
        messages.iter().flat_map(|message| [prefix(message), message.clone()].concat()).collect()
    }

    /// All messages of a stream that arrives in frames, and the state at its end.
    fn read(frames: impl IntoIterator<Item = Bytes>, limit: usize) -> (Vec<Bytes>, Result<(), MessageError>) {
        let mut reader = MessageReader::new(limit);
        let mut messages = Vec::new();
        for frame in frames {
            reader.push(frame);
            loop {
                match reader.next_bytes() {
                    Ok(Some(message)) => messages.push(message),
                    Ok(None) => break,
                    Err(error) => return (messages, Err(error)),
                }
            }
        }
        (messages, reader.finish())
    }

    fn frames_of(stream: &[u8], sizes: &[usize]) -> Vec<Bytes> {
        let mut rest = Bytes::copy_from_slice(stream);
        let mut frames: Vec<Bytes> = sizes.iter().map(|size| rest.split_to((*size).min(rest.len()))).collect();
        frames.push(rest);
        frames
    }

    #[test]
    fn message_is_encoded_with_its_prefix() {
        let message = HealthCheckRequest { service: "a".to_owned() };
        assert_eq!(&encode_message(&message)[..], b"\0\0\0\0\x03\x0a\x01a");
        assert_eq!(&encode_message(&HealthCheckRequest::default())[..], [0; 5]);
    }

    #[test]
    fn message_is_read_in_pieces() {
        let message = HealthCheckRequest { service: "keygate".to_owned() };
        let mut reader = MessageReader::new(64);
        for byte in encode_message(&message) {
            assert_eq!(reader.next_message::<HealthCheckRequest>(), Ok(None));
            reader.push(Bytes::copy_from_slice(&[byte]));
        }
        assert_eq!(reader.next_message(), Ok(Some(message)));
        assert_eq!(reader.next_message::<HealthCheckRequest>(), Ok(None));
        assert_eq!(reader.finish(), Ok(()));
    }

    #[test]
    fn whole_message_is_not_copied() {
        let frame = Bytes::from(framed(&[b"first".to_vec(), b"second".to_vec()]));
        let mut reader = MessageReader::new(64);
        reader.push(frame.clone());
        let first = reader.next_bytes().unwrap().unwrap();
        assert_eq!(first.as_ptr(), frame[PREFIX..].as_ptr());
    }

    #[test]
    fn frames_that_were_pushed_together_are_read() {
        let stream = framed(&[b"first".to_vec(), b"second".to_vec(), b"third".to_vec()]);
        let mut reader = MessageReader::new(64);
        frames_of(&stream, &[7, 11]).into_iter().for_each(|frame| reader.push(frame));
        let messages: Vec<Bytes> = std::iter::from_fn(|| reader.next_bytes().unwrap()).collect();
        assert_eq!(messages, ["first", "second", "third"]);
    }

    #[test]
    fn message_over_the_limit_is_refused_by_its_prefix() {
        let mut reader = MessageReader::new(8);
        reader.push(Bytes::from_static(b"\0\0\0\0\x09"));
        let error = reader.next_bytes().unwrap_err();
        assert_eq!(error, MessageError::TooLarge { length: 9, limit: 8 });
        assert_eq!(error.code(), Code::ResourceExhausted);
        // The error stays: a caller that goes on gets no message out of the middle of another.
        reader.push(Bytes::from(framed(&[b"next".to_vec()])));
        assert_eq!(reader.next_bytes(), Err(error));
        assert_eq!(read([Bytes::from(framed(&[vec![7; 8]]))], 8), (vec![Bytes::from(vec![7; 8])], Ok(())));
    }

    #[test]
    fn announced_length_takes_no_memory() {
        let mut reader = MessageReader::new(usize::MAX);
        reader.push(Bytes::from_static(b"\0\xFF\xFF\xFF\xFFabc"));
        assert_eq!(reader.next_bytes(), Ok(None));
        assert!(reader.partial.capacity() < 1024, "{}", reader.partial.capacity());
        assert_eq!(reader.finish(), Err(MessageError::Truncated));
    }

    #[test]
    fn flags_other_than_uncompressed_are_refused() {
        for (flag, error, code) in [
            (1, MessageError::Compressed, Code::Unimplemented),
            (2, MessageError::Flag(2), Code::Internal),
            (255, MessageError::Flag(255), Code::Internal),
        ] {
            assert_eq!(read([Bytes::from(vec![flag, 0, 0, 0, 0])], 8), (vec![], Err(error.clone())));
            assert_eq!(error.code(), code);
        }
    }

    #[test]
    fn bytes_of_no_message_are_malformed() {
        let mut reader = MessageReader::new(64);
        reader.push(Bytes::from(framed(&[b"\x0a\x05abc".to_vec()])));
        let error = reader.next_message::<HealthCheckRequest>().unwrap_err();
        assert!(matches!(error, MessageError::Malformed(_)), "{error:?}");
        assert_eq!(error.code(), Code::Internal);
    }

    proptest! {
        #[test]
        fn every_division_into_frames_is_read_alike(
            messages in vec(vec(any::<u8>(), 0..40), 0..6),
            sizes in vec(0..30_usize, 0..12),
        ) {
            let (read, end) = read(frames_of(&framed(&messages), &sizes), 40);
            prop_assert_eq!(read, messages);
            prop_assert_eq!(end, Ok(()));
        }

        #[test]
        fn every_prefix_of_a_stream_is_whole_messages_or_truncated(messages in vec(vec(any::<u8>(), 0..20), 1..4)) {
            let stream = framed(&messages);
            let ends: Vec<usize> = (0..=messages.len()).map(|count| framed(&messages[..count]).len()).collect();
            for cut in 0..=stream.len() {
                let (read, end) = read([Bytes::copy_from_slice(&stream[..cut])], 20);
                prop_assert_eq!(&read[..], &messages[..ends.iter().filter(|end| **end <= cut).count() - 1]);
                prop_assert_eq!(end, if ends.contains(&cut) { Ok(()) } else { Err(MessageError::Truncated) });
            }
        }

        /// Messages that are read are those at the begin of the bytes. (Zeros make short messages.)
        #[test]
        fn random_bytes_are_read_or_refused(
            frames in vec(vec(prop_oneof![6 => Just(0), 1 => 0..9_u8, 1 => any::<u8>()], 0..40), 0..6),
        ) {
            let stream = frames.concat();
            let (messages, end) = read(frames.into_iter().map(Bytes::from), 64);
            let read = framed(&messages.iter().map(|message| message.to_vec()).collect::<Vec<_>>());
            prop_assert!(stream.starts_with(&read));
            prop_assert!(end.is_err() || read.len() == stream.len());
        }
    }
}
