//! Blocks of an object: a header that decompressors skip (RFC 8878, section 3.1.2), and a compressed frame of lines.
//!
//! The header names the length and the checksum of the frame, and the position in the journal after it: a block is
//! whole, or is seen not to be.

use serde::{Deserialize, Serialize};

use crate::audit::StreamPosition;

/// Magic number of a frame to skip: the first of sixteen.
const SKIPPABLE: u32 = 0x184D_2A50;
/// Bytes before the content of such a frame: magic number and length.
const PREFIX: usize = 8;

/// Header of a block.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct BlockHeader {
    /// Line of the journal before the records of the block.
    pub(super) from: u64,
    /// Bytes of the compressed lines; none for a block without records.
    length: u64,
    /// Checksum of these bytes.
    crc32: u32,
    /// Position in the journal after the block.
    pub(super) position: StreamPosition,
}

impl BlockHeader {
    /// True for a block with records.
    pub(super) fn has_records(&self) -> bool {
        self.length > 0
    }
}

/// Encodes a block of lines, which may be none.
pub(super) fn encode(from: u64, lines: &[u8], position: StreamPosition) -> std::io::Result<Vec<u8>> {
    let compressed =
        if lines.is_empty() { Vec::new() } else { zstd::bulk::compress(lines, zstd::DEFAULT_COMPRESSION_LEVEL)? };
    let header = BlockHeader { from, length: compressed.len() as u64, crc32: crc32fast::hash(&compressed), position };
    let header = serde_json::to_vec(&header)?;
    let length = u32::try_from(header.len()).map_err(std::io::Error::other)?;
    Ok([&SKIPPABLE.to_le_bytes()[..], &length.to_le_bytes()[..], &header[..], &compressed[..]].concat())
}

/// Decodes the header of the first block, and its length in bytes; `None` when the block is not whole.
pub(super) fn decode(bytes: &[u8]) -> Option<(BlockHeader, usize)> {
    let number = |at: usize| Some(u32::from_le_bytes(*bytes.get(at..at + 4)?.first_chunk()?));
    (number(0)? == SKIPPABLE).then_some(())?;
    let end = PREFIX.checked_add(usize::try_from(number(4)?).ok()?)?;
    let header: BlockHeader = serde_json::from_slice(bytes.get(PREFIX..end)?).ok()?;
    let whole = end.checked_add(usize::try_from(header.length).ok()?)?;
    (crc32fast::hash(bytes.get(end..whole)?) == header.crc32).then_some((header, whole))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn block_is_read_back_and_decompressors_see_its_lines(lines: Vec<u8>, from: u64, rest: Vec<u8>) {
            let position = StreamPosition { line: from, ..StreamPosition::START };
            let block = encode(from, &lines, position).unwrap();
            let (header, length) = decode(&[&block[..], &rest].concat()).unwrap();
            prop_assert_eq!((header.from, header.position, length), (from, position, block.len()));
            prop_assert_eq!(header.has_records(), !lines.is_empty());
            let twice = [&block[..], &block].concat();
            prop_assert_eq!(zstd::decode_all(&twice[..]).unwrap(), [&lines[..], &lines].concat());
        }

        #[test]
        fn torn_block_is_not_read(lines in "[a-z]{1,300}", cut in any::<prop::sample::Index>()) {
            let block = encode(1, lines.as_bytes(), StreamPosition::START).unwrap();
            prop_assert!(decode(&block[..cut.index(block.len())]).is_none());
        }
    }
}
