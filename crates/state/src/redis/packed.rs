//! Packed numbers: integers as little-endian doubles, as Lua's `struct` packs them with `d`.

/// Unpacks integers that are never below zero.
pub(super) fn unpack<const N: usize>(packed: &[u8]) -> Option<[u64; N]> {
    Some(unpack_signed(packed)?.map(unsigned))
}

/// Unpacks integers; doubles are exact below 2^53.
#[allow(clippy::cast_possible_truncation, reason = "the scripts give integers below 2^53")]
pub(super) fn unpack_signed<const N: usize>(packed: &[u8]) -> Option<[i64; N]> {
    let (chunks, rest) = packed.as_chunks::<8>();
    let chunks: &[[u8; 8]; N] = chunks.try_into().ok()?;
    rest.is_empty().then(|| chunks.map(|chunk| f64::from_le_bytes(chunk) as i64))
}

/// A number that is never below zero, of those that [`unpack_signed`] gives.
pub(super) fn unsigned(number: i64) -> u64 {
    u64::try_from(number).unwrap_or(0)
}

/// Appends an integer.
pub(super) fn pack(packed: &mut Vec<u8>, number: u64) {
    packed.extend_from_slice(&packed_number(number));
}

/// An integer, packed.
#[allow(clippy::cast_precision_loss, reason = "exact below 2^53; a larger time or number is as good as infinite")]
pub(super) fn packed_number(number: u64) -> [u8; 8] {
    (number as f64).to_le_bytes()
}
