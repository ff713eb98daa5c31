//! Bytes of anybody are read or refused; they neither panic, nor exhaust the stack.

use std::fmt::Debug;

use bytes::Bytes;
use proptest::collection::vec;
use proptest::prelude::*;
use prost::Message;

use crate::ext_authz::{CheckRequest, CheckResponse};
use crate::ext_proc::{ProcessingRequest, ProcessingResponse};
use crate::grpc::{MessageError, MessageReader};
use crate::health::{HealthCheckRequest, HealthCheckResponse};

const VALID: [&[u8]; 6] = [
    include_bytes!("../../golden/auth.CheckRequest/other_fields.binpb"),
    include_bytes!("../../golden/auth.CheckResponse/admitted.binpb"),
    include_bytes!("../../golden/auth.CheckResponse/denied.binpb"),
    include_bytes!("../../golden/ext_proc.ProcessingRequest/other_fields.binpb"),
    include_bytes!("../../golden/ext_proc.ProcessingResponse/all_fields.binpb"),
    include_bytes!("../../golden/ext_proc.ProcessingResponse/immediate.binpb"),
];

/// Reads bytes as a message of each kind. A message that is read is written and read again as the same.
fn read_as_each(bytes: &[u8]) {
    fn read<M: Message + Default + Debug>(bytes: &[u8]) {
        let Ok(message) = M::decode(bytes) else { return };
        let written = message.encode_to_vec();
        // Compared as bytes: a number that is none is not equal to itself.
        assert_eq!(M::decode(&written[..]).unwrap().encode_to_vec(), written);
        let _ = format!("{message:?}");
    }
    read::<CheckRequest>(bytes);
    read::<CheckResponse>(bytes);
    read::<ProcessingRequest>(bytes);
    read::<ProcessingResponse>(bytes);
    read::<HealthCheckRequest>(bytes);
    read::<HealthCheckResponse>(bytes);
}

/// A prefix has no message of the stream, or the stream's end is an error.
#[test]
fn every_prefix_of_a_call_is_incomplete() {
    for message in VALID {
        let stream = [&[0][..], &(message.len() as u32).to_be_bytes(), message].concat();
        for cut in 1..stream.len() {
            let mut reader = MessageReader::new(1024);
            reader.push(Bytes::copy_from_slice(&stream[..cut]));
            assert_eq!(reader.next_bytes(), Ok(None));
            assert_eq!(reader.finish(), Err(MessageError::Truncated));
        }
    }
}

#[test]
fn every_prefix_and_flipped_bit_of_a_message_is_read_or_refused() {
    for message in VALID {
        for cut in 0..message.len() {
            read_as_each(&message[..cut]);
            for bit in 0..8 {
                let mut flipped = message.to_vec();
                flipped[cut] ^= 1 << bit;
                read_as_each(&flipped);
            }
        }
    }
}

#[test]
fn metadata_that_is_nested_without_end_is_refused() {
    // Objects within objects: the answer's metadata, then its member `a`, the object that it is, its member, …
    let mut nested = Vec::new();
    for _ in 0..10_000 {
        let value = bytes_field(5, &nested);
        let entry = [b"\x0a\x01a".to_vec(), bytes_field(2, &value)].concat();
        nested = bytes_field(1, &entry);
    }
    let answer = bytes_field(8, &nested);
    assert!(ProcessingResponse::decode(&answer[..]).is_err());
    let skipped = bytes_field(15, &nested);
    assert_eq!(ProcessingResponse::decode(&skipped[..]), Ok(ProcessingResponse::default()));
}

/// A field whose value is of bytes.
fn bytes_field(tag: u32, value: &[u8]) -> Vec<u8> {
    let mut field = Vec::with_capacity(value.len() + 8);
    prost::encoding::encode_key(tag, prost::encoding::WireType::LengthDelimited, &mut field);
    prost::encoding::encode_varint(value.len() as u64, &mut field);
    field.extend_from_slice(value);
    field
}

proptest! {
    #[test]
    fn random_bytes_are_read_or_refused(bytes in vec(any::<u8>(), 0..200)) {
        read_as_each(&bytes);
    }

    #[test]
    fn messages_with_random_pieces_are_read_or_refused(
        message in 0..VALID.len(),
        at: prop::sample::Index,
        piece in vec(any::<u8>(), 1..8),
    ) {
        let mut bytes = VALID[message].to_vec();
        let at = at.index(bytes.len());
        let end = (at + piece.len()).min(bytes.len());
        bytes.splice(at..end, piece);
        read_as_each(&bytes);
    }
}
