//! Copies of the checkpoints of a journal, from where they are kept.

use tlog::checkpoint::{Checkpoint, SignedCheckpoint};
use tlog::hash::Hash;
use tlog::key::PublicKey;

/// Reason why a text is no copy of a checkpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidCheckpoint {
    /// It is no signed note of a checkpoint.
    #[error("this is no checkpoint")]
    Unreadable,
    /// The key has not signed it.
    #[error("the checkpoint is not signed by this key")]
    NotSigned,
}

/// Copies of checkpoints of one tree, whose signatures were verified: 40 bytes for each.
#[derive(Clone, Debug, Default)]
pub struct CheckpointCopies {
    origin: String,
    /// Sizes and roots.
    found: Vec<(u64, Hash)>,
    other_trees: u64,
}

impl CheckpointCopies {
    /// Adds a copy: a signed note of the key. One of another tree is counted, and left out.
    ///
    /// # Errors
    /// [`InvalidCheckpoint`].
    pub fn add(&mut self, note: &str, key: &PublicKey) -> Result<(), InvalidCheckpoint> {
        let signed = SignedCheckpoint::parse(note).ok_or(InvalidCheckpoint::Unreadable)?;
        // A tree has the name of its key; what was shipped may have those of earlier keys, too.
        if signed.checkpoint.origin != key.name() {
            self.other_trees += 1;
            return Ok(());
        }
        signed.note.verified(key).ok_or(InvalidCheckpoint::NotSigned)?;
        self.push(signed.checkpoint);
        Ok(())
    }

    /// Copies of a tree of which there may be none.
    pub(crate) fn of_tree(origin: String, latest: Option<Checkpoint>) -> Self {
        let mut copies = Self { origin, ..Self::default() };
        latest.into_iter().for_each(|latest| copies.push(latest));
        copies
    }

    fn push(&mut self, Checkpoint { origin, size, root }: Checkpoint) {
        self.origin = origin;
        self.found.push((size, root));
    }

    /// Number of copies.
    pub fn count(&self) -> u64 {
        self.found.len() as u64
    }

    /// Number of copies that were left out.
    pub fn other_trees(&self) -> u64 {
        self.other_trees
    }

    pub(crate) fn origin(&self) -> &str {
        &self.origin
    }

    /// Lines that the last one covers.
    pub(crate) fn largest(&self) -> u64 {
        self.found.iter().map(|(size, _)| *size).max().unwrap_or(0)
    }

    /// Sizes and roots, each once.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u64, Hash)> {
        let mut found = self.found.clone();
        found.sort_unstable();
        found.dedup();
        found.into_iter()
    }

    /// Sizes of which there are two roots.
    pub(crate) fn contradictions(&self) -> Vec<u64> {
        let sizes: Vec<u64> = self.iter().map(|(size, _)| size).collect();
        let mut twice: Vec<u64> = sizes.windows(2).filter(|pair| pair[0] == pair[1]).map(|pair| pair[0]).collect();
        twice.dedup();
        twice
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tlog::key::SigningKey;

    fn note(key: &SigningKey, size: u64, root: u8) -> String {
        let checkpoint = Checkpoint { origin: key.public().name().to_owned(), size, root: [root; 32] };
        SignedCheckpoint::sign(checkpoint, key).note.to_string()
    }

    #[test]
    fn copies_are_of_one_tree_and_two_roots_of_one_size_contradict() {
        let [key, other] = ["gw-1", "gw-2"].map(|name| SigningKey::generate(name).unwrap().0);
        let (forger, _) = SigningKey::generate("gw-1").unwrap();
        let mut copies = CheckpointCopies::default();
        for (size, root) in [(7, 1), (3, 1), (7, 1)] {
            copies.add(&note(&key, size, root), key.public()).unwrap();
        }
        assert_eq!((copies.count(), copies.largest(), copies.contradictions()), (3, 7, vec![]));
        assert_eq!(copies.iter().collect::<Vec<_>>(), [(3, [1; 32]), (7, [1; 32])]);
        copies.add(&note(&other, 9, 1), key.public()).unwrap();
        assert_eq!((copies.count(), copies.other_trees(), copies.largest()), (3, 1, 7));
        assert_eq!(copies.add(&note(&forger, 9, 1), key.public()), Err(InvalidCheckpoint::NotSigned));
        assert_eq!(copies.add("gw-1\n9\n", key.public()), Err(InvalidCheckpoint::Unreadable));
        copies.add(&note(&key, 7, 2), key.public()).unwrap();
        copies.add(&note(&key, 7, 3), key.public()).unwrap();
        assert_eq!(copies.contradictions(), [7]);
    }
}
