//! A Merkle tree and a verifier of proofs, by the definitions of RFC 9162 and C2SP, without any code of the journal;
//! and edits of journals.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs;
use std::path::Path;

use aws_lc_rs::signature::{ED25519, UnparsedPublicKey};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use sha2::{Digest as _, Sha256};

use crate::support::eventually;

pub type Hash = [u8; 32];

pub fn leaf(data: &[u8]) -> Hash {
    Sha256::digest([&[0], data].concat()).into()
}

pub fn node(left: &Hash, right: &Hash) -> Hash {
    Sha256::digest([&[1][..], left, right].concat()).into()
}

/// RFC 9162, section 2.1.1.
pub fn root(leaves: &[Hash]) -> Hash {
    match leaves {
        [] => Sha256::digest([]).into(),
        [leaf] => *leaf,
        _ => {
            let (left, right) = leaves.split_at(leaves.len().next_power_of_two() / 2);
            node(&root(left), &root(right))
        }
    }
}

/// Root of a tree of `size` leaves that has this leaf at `index`, by the recursive definition of a path (RFC
/// 9162, section 2.1.3.1).
fn root_by_path(leaf: Hash, index: u64, size: u64, path: &[Hash]) -> Option<Hash> {
    if size == 1 {
        return path.is_empty().then_some(leaf);
    }
    let (sibling, rest) = path.split_last()?;
    let split = size.next_power_of_two() / 2;
    if index < split {
        Some(node(&root_by_path(leaf, index, split, rest)?, sibling))
    } else {
        Some(node(sibling, &root_by_path(leaf, index - split, size - split, rest)?))
    }
}

/// Verifies a tlog-proof without its first line, and the signature of its checkpoint; returns the line that it is of.
pub fn verify_proof(proof: &str, key: &str) -> Option<String> {
    let (head, note) = proof.split_once("\n\n")?;
    let mut fields = head.lines();
    let line = STANDARD.decode(fields.next()?.strip_prefix("extra ")?).ok()?;
    let index: u64 = fields.next()?.strip_prefix("index ")?.parse().ok()?;
    let path: Option<Vec<Hash>> = fields.map(|hash| STANDARD.decode(hash).ok()?.try_into().ok()).collect();
    let (text, signature) = note.split_once("\n\n")?;
    let text = format!("{text}\n");
    verify_signature(&text, signature.lines().next()?, key)?;
    let mut lines = text.lines().skip(1);
    let size: u64 = lines.next()?.parse().ok()?;
    let expected: Hash = STANDARD.decode(lines.next()?).ok()?.try_into().ok()?;
    let computed = root_by_path(leaf(&line), index, size, &path?)?;
    (index < size && computed == expected).then(|| String::from_utf8(line).unwrap())
}

/// Verifies the line of a signature by C2SP signed-note.
pub fn verify_signature(text: &str, line: &str, key: &str) -> Option<()> {
    let key = STANDARD.decode(key.splitn(3, '+').nth(2)?).ok()?;
    let (_, signature) = line.strip_prefix("— ")?.split_once(' ')?;
    let signature = STANDARD.decode(signature).ok()?;
    UnparsedPublicKey::new(&ED25519, &key[1..]).verify(text.as_bytes(), &signature[4..]).ok()
}

/// The line with the checksum of what is in it now.
pub fn reframe(line: &str) -> String {
    if line.starts_with('{') {
        let covered = line.rsplit_once(",\"crc\":").unwrap().0;
        return format!("{covered},\"crc\":\"{:08x}\"}}", crc32fast::hash(covered.as_bytes()));
    }
    let covered = line.rsplit_once('\t').unwrap().0;
    format!("{covered}\t{:08x}", crc32fast::hash(covered.as_bytes()))
}

/// The line with another number.
pub fn renumber(line: &str, n: usize) -> String {
    if line.starts_with('{') {
        let body = line.rsplit_once(",\"n\":").unwrap().0;
        return reframe(&format!("{body},\"n\":{n},\"crc\":\"\"}}"));
    }
    let (body, _) = line.rsplit_once('\t').unwrap().0.rsplit_once('\t').unwrap();
    reframe(&format!("{body}\t{n}\t"))
}

/// Copies a directory without directories, as it was at one moment: a segment that is compressed meanwhile changes its
/// name, and a copy could have it under neither.
pub fn copy(from: &Path, to: &Path) {
    eventually("no file has got another name during the copy", || {
        let before = names(from);
        fs::remove_dir_all(to).ok();
        fs::create_dir_all(to).unwrap();
        before.iter().for_each(|name| drop(fs::copy(from.join(name), to.join(name))));
        names(from) == before
    });
}

/// The names of the files in a directory.
fn names(directory: &Path) -> BTreeSet<OsString> {
    let entries = fs::read_dir(directory).unwrap().map(Result::unwrap);
    entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_file())).map(|entry| entry.file_name()).collect()
}
