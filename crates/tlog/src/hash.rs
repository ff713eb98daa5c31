//! Hashes of leaves and nodes, as RFC 9162, section 2.1.1, defines them.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use sha2::{Digest as _, Sha256};

/// SHA-256 of a leaf or a node.
pub type Hash = [u8; 32];

/// Distinguishes leaves from nodes, so that no node can be passed off as a leaf.
const LEAF: u8 = 0;
const NODE: u8 = 1;

/// The hash of a leaf.
pub fn leaf(data: &[u8]) -> Hash {
    Sha256::new().chain_update([LEAF]).chain_update(data).finalize().into()
}

/// The hash of a node with two children.
pub fn node(left: &Hash, right: &Hash) -> Hash {
    let mut data = [NODE; 65];
    data[1..33].copy_from_slice(left);
    data[33..].copy_from_slice(right);
    Sha256::digest(data).into()
}

/// The root of a tree without leaves.
pub fn empty() -> Hash {
    Sha256::digest([]).into()
}

/// A hash in base64, as in checkpoints and proofs.
pub fn encode(hash: &Hash) -> String {
    STANDARD.encode(hash)
}

/// Reads a hash in base64.
pub fn decode(text: &str) -> Option<Hash> {
    STANDARD.decode(text).ok()?.try_into().ok()
}
