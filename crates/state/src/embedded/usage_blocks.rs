//! Usage of keys in the state file: entries of one size, in blocks of keys with consecutive rows.
//!
//! - A checkpoint writes a block once for all of its keys that were used, so that a use among many keys costs little.
//! - A key without an entry was never written back: its last use and its uses are in the columns of its row, and its
//!   bucket is full.

use rusqlite::{Connection, OptionalExtension as _, params};

use crate::bucket::Bucket;
use domain::clock::Micros;

use super::key::Usage;
use super::sql::integer;

/// Keys of one block: it then fills one page of the file, of 4096 bytes.
pub(super) const KEYS_PER_BLOCK: u32 = 100;
/// Numbers of an entry: level, its time, the `per` that it is measured in, last use, number of uses.
const NUMBERS: usize = 5;
const ENTRY_LENGTH: usize = NUMBERS * size_of::<u64>();
const BLOCK_LENGTH: usize = KEYS_PER_BLOCK as usize * ENTRY_LENGTH;
/// Stands for no last use.
const NEVER: u64 = u64::MAX;

/// The number of the block that has the usage of the key in this row.
pub(super) fn block_number(row: u32) -> u32 {
    row / KEYS_PER_BLOCK
}

/// Reads the entry of the key in this row from its block; none when it has no entry.
pub(super) fn read_entry(block: &[u8], row: u32) -> Option<Usage> {
    let entry = block.get(entry_start(row)..)?.first_chunk::<ENTRY_LENGTH>()?;
    let (numbers, _) = entry.as_chunks();
    let number = |index: usize| u64::from_le_bytes(numbers[index]);
    // The `per` of a quota is never zero, so an entry of zeros is none.
    let per_us = Some(number(2)).filter(|per| *per > 0)?;
    let bucket = Bucket { level: number(0).cast_signed(), at: Micros(number(1)) };
    let last_used = Some(Micros(number(3))).filter(|at| at.0 != NEVER);
    Some(Usage { bucket, per_us, last_used, uses: number(4) })
}

fn write_entry(block: &mut [u8], row: u32, usage: &Usage) {
    let last_used = usage.last_used.map_or(NEVER, |at| at.0);
    let numbers = [usage.bucket.level.cast_unsigned(), usage.bucket.at.0, usage.per_us, last_used, usage.uses];
    let entry = &mut block[entry_start(row)..][..ENTRY_LENGTH];
    for (bytes, number) in entry.as_chunks_mut().0.iter_mut().zip(numbers) {
        *bytes = number.to_le_bytes();
    }
}

fn entry_start(row: u32) -> usize {
    (row % KEYS_PER_BLOCK) as usize * ENTRY_LENGTH
}

/// The uses that the file has counted.
#[derive(Clone, Copy, Debug)]
pub(super) struct CountedUpTo {
    /// All up to this time.
    pub(super) time: Micros,
    /// All in lines of the journal before this one; `None` when that is not known.
    pub(super) line: Option<u64>,
}

/// Writes the usage of keys, in any order, in one transaction. With `counted`, the file then has counted every
/// use up to there.
pub(super) fn write(
    connection: &mut Connection,
    used: &mut [(u32, Usage)],
    counted: Option<CountedUpTo>,
) -> rusqlite::Result<()> {
    let transaction = connection.transaction()?;
    write_blocks(&transaction, used)?;
    if let Some(CountedUpTo { time, line }) = counted {
        transaction.execute("INSERT OR REPLACE INTO meta VALUES ('written_back_at', ?1)", [integer(time.0)])?;
        // Without the line, that of before stays: more uses are read again, and none is counted twice.
        if let Some(line) = line {
            transaction.execute("INSERT OR REPLACE INTO meta VALUES ('written_back_line', ?1)", [integer(line)])?;
        }
    }
    transaction.commit()
}

/// Writes the usage of keys in any order: each block once.
pub(super) fn write_blocks(transaction: &Connection, used: &mut [(u32, Usage)]) -> rusqlite::Result<()> {
    used.sort_unstable_by_key(|(row, _)| *row);
    let mut blocks = used.chunk_by(|(row, _), (next, _)| block_number(*row) == block_number(*next));
    blocks.try_for_each(|keys| write_block(transaction, keys))
}

/// Writes the usage of keys of the same block.
pub(super) fn write_block(transaction: &Connection, keys: &[(u32, Usage)]) -> rusqlite::Result<()> {
    let Some(number) = keys.first().map(|(row, _)| block_number(*row)) else { return Ok(()) };
    let mut read = transaction.prepare_cached("SELECT content FROM usage WHERE block = ?1")?;
    let mut block: Vec<u8> = read.query_row([number], |row| row.get(0)).optional()?.unwrap_or_default();
    block.resize(BLOCK_LENGTH, 0);
    for (row, usage) in keys {
        write_entry(&mut block, *row, usage);
    }
    let write = "INSERT INTO usage VALUES (?1, ?2) ON CONFLICT (block) DO UPDATE SET content = excluded.content";
    transaction.prepare_cached(write)?.execute(params![number, block]).map(drop)
}

/// The row of a key; none when the file does not have the key.
pub(super) fn find_row(connection: &Connection, key: &str) -> rusqlite::Result<Option<u32>> {
    let mut query = connection.prepare_cached("SELECT rowid FROM keys WHERE id = ?1")?;
    query.query_row([key], |row| row.get(0)).optional()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn usages() -> impl Strategy<Value = Usage> {
        (any::<i64>(), any::<u64>(), 1..u64::MAX, proptest::option::of(0..NEVER), any::<u64>()).prop_map(
            |(level, at, per_us, last_used, uses)| {
                let bucket = Bucket { level, at: Micros(at) };
                Usage { bucket, per_us, last_used: last_used.map(Micros), uses }
            },
        )
    }

    proptest! {
        #[test]
        fn entry_is_read_as_it_was_written_and_touches_no_other(
            one in usages(), other in usages(), row in 0..KEYS_PER_BLOCK - 1, block in 0..1000_u32,
        ) {
            let mut content = vec![0; BLOCK_LENGTH];
            let row = block * KEYS_PER_BLOCK + row;
            write_entry(&mut content, row, &one);
            prop_assert_eq!(read_entry(&content, row + 1), None);
            write_entry(&mut content, row + 1, &other);
            prop_assert_eq!(read_entry(&content, row), Some(one));
            prop_assert_eq!(read_entry(&content, row + 1), Some(other));
        }
    }

    #[test]
    fn truncated_block_has_no_entry() {
        assert_eq!(read_entry(&[1; ENTRY_LENGTH - 1], 0), None);
        assert_eq!(read_entry(&[1; ENTRY_LENGTH], 1), None);
    }
}
