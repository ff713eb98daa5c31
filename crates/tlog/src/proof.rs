//! Inclusion and consistency proofs: the subtrees that they consist of, and the check of an inclusion (RFC 9162,
//! sections 2.1.3 and 2.1.4).

use std::ops::Range;

use super::hash::{self, Hash};

/// A run of leaves, whose root is a hash of a proof.
pub type Leaves = Range<u64>;

/// The subtrees whose roots prove that leaf `index` is in a tree of `size` leaves, from the leaf's sibling upwards.
pub fn inclusion(index: u64, size: u64) -> Vec<Leaves> {
    let mut tree = 0..size;
    let mut siblings = Vec::new();
    while tree.end.saturating_sub(tree.start) > 1 {
        let middle = split(&tree);
        if index < middle {
            siblings.push(middle..tree.end);
            tree.end = middle;
        } else {
            siblings.push(tree.start..middle);
            tree.start = middle;
        }
    }
    siblings.reverse();
    siblings
}

/// The subtrees whose roots prove that a tree of `size` leaves begins with the `old` leaves of an older one. Empty when
/// the older one is empty or the same.
pub fn consistency(old: u64, size: u64) -> Vec<Leaves> {
    let mut tree = 0..size;
    let mut parts = Vec::new();
    if old == 0 || old >= size {
        return parts;
    }
    while tree.end != old {
        let middle = split(&tree);
        if old <= middle {
            parts.push(middle..tree.end);
            tree.end = middle;
        } else {
            parts.push(tree.start..middle);
            tree.start = middle;
        }
    }
    // The verifier has the root of the old tree itself.
    if tree.start > 0 {
        parts.push(tree);
    }
    parts.reverse();
    parts
}

/// The place where a tree of more than one leaf is split: after the largest power of two that is less than its size.
fn split(tree: &Leaves) -> u64 {
    tree.start + (1 << (tree.end - tree.start - 1).ilog2())
}

/// Checks by a proof that the leaf at `index` is in the tree of `size` leaves with this root.
pub fn verify_inclusion(leaf: Hash, index: u64, size: u64, proof: &[Hash], root: &Hash) -> bool {
    let Some(mut last) = size.checked_sub(1).filter(|last| index <= *last) else { return false };
    let mut at = index;
    let mut computed = leaf;
    for sibling in proof {
        if last == 0 {
            return false;
        }
        if at % 2 == 1 || at == last {
            computed = hash::node(sibling, &computed);
            // Levels at which the right edge of the tree has no sibling.
            while at.is_multiple_of(2) && at != 0 {
                (at, last) = (at / 2, last / 2);
            }
        } else {
            computed = hash::node(&computed, sibling);
        }
        (at, last) = (at / 2, last / 2);
    }
    last == 0 && computed == *root
}

#[cfg(test)]
pub(crate) mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::range::LeafRange;

    /// The leaves, roots and proofs by which the implementations of Certificate Transparency test their trees.
    const LEAVES: [&str; 8] =
        ["", "00", "10", "2021", "3031", "40414243", "5051525354555657", "606162636465666768696a6b6c6d6e6f"];
    const ROOTS: [&str; 8] = [
        "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d",
        "fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125",
        "aeb6bcfe274b70a14fb067a5e5578264db0fa9b51af5e0ba159158f329e06e77",
        "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7",
        "4e3bbb1f7b478dcfe71fb631631519a3bca12c9aefca1612bfce4c13a86264d4",
        "76e67dadbcdf1e10e1b74ddc608abd2f98dfb16fbce75277b5232a127f2087ef",
        "ddb89be403809e325750d3d263cd78929c2942b7942a34b77e122c9594a74c8c",
        "5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328",
    ];
    /// Index, size, proof.
    const INCLUSIONS: [(u64, u64, &[&str]); 4] = [
        (0, 1, &[]),
        (
            0,
            8,
            &[
                "96a296d224f285c67bee93c30f8a309157f0daa35dc5b87e410b78630a09cfc7",
                "5f083f0a1a33ca076a95279832580db3e0ef4584bdff1f54c8a360f50de3031e",
                "6b47aaf29ee3c2af9af889bc1fb9254dabd31177f16232dd6aab035ca39bf6e4",
            ],
        ),
        (
            5,
            8,
            &[
                "bc1a0643b12e4d2d7c77918f44e0f4f79a838b6cf9ec5b5c283e1f4d88599e6b",
                "ca854ea128ed050b41b35ffc1b87b8eb2bde461e9e3b5596ece6b9d5975a0ae0",
                "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7",
            ],
        ),
        (2, 3, &["fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125"]),
    ];
    /// Old size, size, proof.
    const CONSISTENCIES: [(u64, u64, &[&str]); 4] = [
        (1, 1, &[]),
        (
            1,
            8,
            &[
                "96a296d224f285c67bee93c30f8a309157f0daa35dc5b87e410b78630a09cfc7",
                "5f083f0a1a33ca076a95279832580db3e0ef4584bdff1f54c8a360f50de3031e",
                "6b47aaf29ee3c2af9af889bc1fb9254dabd31177f16232dd6aab035ca39bf6e4",
            ],
        ),
        (
            6,
            8,
            &[
                "0ebc5d3437fbe2db158b9f126a1d118e308181031d0a949f8dededebc558ef6a",
                "ca854ea128ed050b41b35ffc1b87b8eb2bde461e9e3b5596ece6b9d5975a0ae0",
                "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7",
            ],
        ),
        (
            2,
            5,
            &[
                "5f083f0a1a33ca076a95279832580db3e0ef4584bdff1f54c8a360f50de3031e",
                "bc1a0643b12e4d2d7c77918f44e0f4f79a838b6cf9ec5b5c283e1f4d88599e6b",
            ],
        ),
    ];

    fn bytes(hex: &str) -> Vec<u8> {
        (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap()).collect()
    }

    fn hash_of(hex: &str) -> Hash {
        bytes(hex).try_into().unwrap()
    }

    pub(crate) fn leaves(count: usize) -> Vec<Hash> {
        (0..count).map(|n| hash::leaf(n.to_string().as_bytes())).collect()
    }

    /// The root, by the recursive definition of RFC 9162, section 2.1.1.
    pub(crate) fn root_by_definition(leaves: &[Hash]) -> Hash {
        match leaves {
            [] => hash::empty(),
            [leaf] => *leaf,
            _ => {
                let (left, right) = leaves.split_at(leaves.len().next_power_of_two() / 2);
                hash::node(&root_by_definition(left), &root_by_definition(right))
            }
        }
    }

    fn roots(parts: Vec<Leaves>, leaves: &[Hash]) -> Vec<Hash> {
        let root = |part: Leaves| {
            let [from, to] = [part.start, part.end].map(|at| usize::try_from(at).unwrap());
            root_by_definition(&leaves[from..to])
        };
        parts.into_iter().map(root).collect()
    }

    /// Checks a consistency proof, as RFC 9162, section 2.1.4.2, says.
    fn verify_consistency((old, old_root): (u64, Hash), (size, root): (u64, Hash), proof: &[Hash]) -> bool {
        if old == size {
            return proof.is_empty() && old_root == root;
        }
        let first = if old.is_power_of_two() { vec![old_root] } else { Vec::new() };
        let mut path = first.into_iter().chain(proof.iter().copied());
        let mut at = old - 1;
        let mut last = size - 1;
        while at % 2 == 1 {
            (at, last) = (at / 2, last / 2);
        }
        let Some(start) = path.next() else { return false };
        let mut from_old = start;
        let mut from_new = start;
        for sibling in path {
            if last == 0 {
                return false;
            }
            if at % 2 == 1 || at == last {
                (from_old, from_new) = (hash::node(&sibling, &from_old), hash::node(&sibling, &from_new));
                while at % 2 == 0 && at != 0 {
                    (at, last) = (at / 2, last / 2);
                }
            } else {
                from_new = hash::node(&from_new, &sibling);
            }
            (at, last) = (at / 2, last / 2);
        }
        last == 0 && from_old == old_root && from_new == root
    }

    #[test]
    fn trees_and_proofs_are_those_of_certificate_transparency() {
        let leaves: Vec<Hash> = LEAVES.iter().map(|hex| hash::leaf(&bytes(hex))).collect();
        let mut range = LeafRange::new(0);
        assert_eq!(range.root(), hash_of("e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"));
        for (leaf, root) in leaves.iter().zip(ROOTS) {
            range.push(*leaf);
            assert_eq!(range.root(), hash_of(root));
        }
        for (index, size, expected) in INCLUSIONS {
            let proof: Vec<Hash> = expected.iter().map(|hex| hash_of(hex)).collect();
            assert_eq!(roots(inclusion(index, size), &leaves), proof, "leaf {index} in {size}");
            let [at, root] = [index, size - 1].map(|n| usize::try_from(n).unwrap());
            assert!(verify_inclusion(leaves[at], index, size, &proof, &hash_of(ROOTS[root])));
        }
        for (old, size, expected) in CONSISTENCIES {
            let proof: Vec<Hash> = expected.iter().map(|hex| hash_of(hex)).collect();
            assert_eq!(roots(consistency(old, size), &leaves), proof, "{old} in {size}");
        }
    }

    proptest! {
        #[test]
        fn inclusion_is_proven_at_every_place_and_nowhere_else(
            size in 1_usize..150,
            at in any::<prop::sample::Index>(),
            other in 0_u64..150,
        ) {
            let leaves = leaves(size);
            let index = at.index(size);
            let root = root_by_definition(&leaves);
            let place = index as u64;
            let count = size as u64;
            let proof = roots(inclusion(place, count), &leaves);
            prop_assert!(verify_inclusion(leaves[index], place, count, &proof, &root));
            prop_assert_eq!(verify_inclusion(leaves[index], other, count, &proof, &root), other == place);
            prop_assert!(!verify_inclusion(hash::leaf(b"another"), place, count, &proof, &root));
        }

        #[test]
        fn consistency_is_proven_and_its_parts_come_from_the_two_runs(
            size in 1_usize..150,
            at in any::<prop::sample::Index>(),
        ) {
            let leaves = leaves(size);
            let old = at.index(size) + 1;
            let [mut before, mut since] = [LeafRange::new(0), LeafRange::new(old as u64)];
            leaves[..old].iter().for_each(|leaf| before.push(*leaf));
            leaves[old..].iter().for_each(|leaf| since.push(*leaf));
            let parts = consistency(old as u64, size as u64);
            let found = |part: &Leaves| before.subtree(part.start, part.end).or(since.subtree(part.start, part.end));
            let proof: Option<Vec<Hash>> = parts.iter().map(found).collect();
            prop_assert_eq!(proof.as_ref(), Some(&roots(parts.clone(), &leaves)));
            let roots = (root_by_definition(&leaves[..old]), root_by_definition(&leaves));
            prop_assert!(verify_consistency((old as u64, roots.0), (size as u64, roots.1), &proof.unwrap()));
        }
    }
}
