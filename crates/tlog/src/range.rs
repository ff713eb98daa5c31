//! A run of leaves as a few hashes: the roots of the largest complete subtrees that it consists of.
//!
//! - A run of n leaves has at most two hashes for each doubling of n.
//! - Adjacent runs are joined without their leaves. Runs from leaf 0 on give the root of the tree.

use std::ops::Range;

use super::hash::{self, Hash};

/// A run of leaves.
///
/// - Its nodes are in the order of the leaves; the node of level n covers 2^n leaves, and begins at a multiple of that.
/// - No two adjacent nodes are children of one parent: the nodes follow from the two ends of the run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeafRange {
    begin: u64,
    end: u64,
    /// Level and hash.
    nodes: Vec<(u32, Hash)>,
}

impl LeafRange {
    /// The run without leaves at this place.
    pub fn new(begin: u64) -> Self {
        Self { begin, end: begin, nodes: Vec::new() }
    }

    /// The run between two places with these hashes; `None` when it would have another number of them.
    pub fn from_hashes(begin: u64, end: u64, hashes: Vec<Hash>) -> Option<Self> {
        let levels = levels(begin, end)?;
        (levels.len() == hashes.len()).then(|| Self { begin, end, nodes: levels.into_iter().zip(hashes).collect() })
    }

    /// The number of the first leaf.
    pub fn begin(&self) -> u64 {
        self.begin
    }

    /// The number of the first leaf after the run.
    pub fn end(&self) -> u64 {
        self.end
    }

    /// The hashes of the nodes, in the order of the leaves.
    pub fn hashes(&self) -> impl DoubleEndedIterator<Item = &Hash> {
        self.nodes.iter().map(|(_, hash)| hash)
    }

    /// The nodes, each with the leaves that it covers.
    pub fn nodes(&self) -> impl Iterator<Item = (Range<u64>, Hash)> {
        self.nodes.iter().scan(self.begin, |at, (level, hash)| {
            let begin = *at;
            *at += 1 << level;
            Some((begin..*at, *hash))
        })
    }

    /// Appends a node that follows, with the leaves that it covers.
    pub fn push_node(&mut self, leaves: &Range<u64>, hash: Hash) {
        debug_assert_eq!(self.end, leaves.start, "nodes are joined where they meet");
        self.append((leaves.end - leaves.start).trailing_zeros(), hash);
    }

    /// Appends the hash of a leaf.
    pub fn push(&mut self, leaf: Hash) {
        self.append(0, leaf);
    }

    /// Appends the run that follows this one.
    pub fn extend(&mut self, next: &Self) {
        debug_assert_eq!(self.end, next.begin, "runs are joined where they meet");
        next.nodes.iter().for_each(|(level, hash)| self.append(*level, *hash));
    }

    fn append(&mut self, mut level: u32, mut hash: Hash) {
        self.end += 1 << level;
        // The last node is the left sibling where both together end at a multiple of their length.
        while let Some((last, left)) = self.nodes.last()
            && *last == level
            && self.end.trailing_zeros() > level
        {
            hash = hash::node(left, &hash);
            level += 1;
            self.nodes.pop();
        }
        self.nodes.push((level, hash));
    }

    /// The root of the tree whose leaves these are. The run begins at leaf 0.
    pub fn root(&self) -> Hash {
        fold(self.hashes()).unwrap_or_else(hash::empty)
    }

    /// The root of the leaves between two places of this run; `None` when no nodes lie exactly between them.
    pub fn subtree(&self, begin: u64, end: u64) -> Option<Hash> {
        let mut at = self.begin;
        let mut covered = begin;
        let mut found = Vec::new();
        for (level, hash) in &self.nodes {
            let next = at + (1 << level);
            if at >= begin && next <= end && at == covered {
                found.push(hash);
                covered = next;
            }
            at = next;
        }
        (covered == end).then(|| fold(found.into_iter()))?
    }
}

/// The root over adjacent subtrees: the last two are joined first, as RFC 9162 splits a tree.
fn fold<'a>(hashes: impl DoubleEndedIterator<Item = &'a Hash>) -> Option<Hash> {
    hashes.rev().copied().reduce(|right, left| hash::node(&left, &right))
}

/// The levels of the nodes of a run; `None` when it ends before it begins.
fn levels(begin: u64, end: u64) -> Option<Vec<u32>> {
    let mut at = begin;
    let mut levels = Vec::new();
    end.checked_sub(begin)?;
    while at < end {
        // The largest subtree that may begin here and fits.
        let level = at.trailing_zeros().min((end - at).ilog2());
        levels.push(level);
        at += 1 << level;
    }
    Some(levels)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::proof::tests::{leaves, root_by_definition};

    fn range(from: u64, leaves: &[Hash]) -> LeafRange {
        let mut range = LeafRange::new(from);
        leaves.iter().for_each(|leaf| range.push(*leaf));
        range
    }

    proptest! {
        #[test]
        fn root_is_that_of_the_definition_however_the_leaves_come(
            count in 0_usize..200, splits in prop::collection::vec(0_usize..200, 0..6),
        ) {
            let leaves = leaves(count);
            let whole = range(0, &leaves);
            prop_assert_eq!(whole.root(), root_by_definition(&leaves));
            let mut ends: Vec<usize> = splits.into_iter().map(|at| at.min(count)).chain([count]).collect();
            ends.sort_unstable();
            let mut joined = LeafRange::new(0);
            let mut from = 0;
            for end in ends {
                let part = range(from as u64, &leaves[from..end]);
                let hashes = part.hashes().copied().collect();
                prop_assert_eq!(LeafRange::from_hashes(from as u64, end as u64, hashes), Some(part.clone()));
                joined.extend(&part);
                from = end;
            }
            prop_assert_eq!(joined, whole);
        }
    }

    #[test]
    fn run_with_another_number_of_hashes_is_none() {
        assert_eq!(LeafRange::from_hashes(3, 8, vec![[0; 32]; 3]), None);
        assert_eq!(LeafRange::from_hashes(8, 3, Vec::new()), None);
        assert!(LeafRange::from_hashes(3, 8, vec![[0; 32]; 2]).is_some(), "one leaf, and a subtree of four");
    }
}
