//! Packed numbers: integers as little-endian doubles, as Lua's `struct` packs them with `d`.

/// Unpacks integers; doubles are exact below 2^53.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "the scripts give integers from 0 to 2^53")]
pub(super) fn unpack<const N: usize>(packed: &[u8]) -> Option<[u64; N]> {
    let (chunks, rest) = packed.as_chunks::<8>();
    let chunks: &[[u8; 8]; N] = chunks.try_into().ok()?;
    rest.is_empty().then(|| chunks.map(|chunk| f64::from_le_bytes(chunk) as u64))
}

/// Appends an integer.
#[allow(clippy::cast_precision_loss, reason = "exact below 2^53; a larger time or number is as good as infinite")]
pub(super) fn pack(packed: &mut Vec<u8>, number: u64) {
    packed.extend_from_slice(&(number as f64).to_le_bytes());
}
