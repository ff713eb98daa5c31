//! Usage of keys in a stretch of the journal that is counted to its end, packed: some 16 bytes for each key.
//!
//! - The keys are in order: two runs are merged, and a run is added up, from the beginning to the end, and a key is
//!   found by a binary search of the pages.
//! - It says the same as the counts that it was packed from: merging runs is [`UsageCounts::extend`], key by key.
//!
//! ```text
//! counts of the open segment --full, or closed--> run --+
//!                                                 run --+--merged--> run --slices--> rows of the database
//! ```

use std::sync::Arc;

use rustc_hash::{FxHashMap, FxHashSet};

use super::indexed_use::KeyOwner;
use super::packed_usage::{self, Previous};
use super::usage_counts::{KeyUsage, LateOutcome, UsageCounts};
use crate::audit::format::pack::Input;
use domain::identity::OrgId;
use domain::key::KeyId;

/// Keys of a page: a reader of one key unpacks half a page, and a page takes 30 bytes beside its keys.
const PAGE: usize = 64;

const INTACT: &str = "a run is changed by nothing after it was packed";

/// Usage of keys in a stretch of the journal.
///
/// - Uses that are open at its end are not listed: their outcomes are found by the ids in the usage of their keys.
#[derive(Debug, Default)]
pub(crate) struct UsageRun {
    bytes: Vec<u8>,
    /// Beginning of each page.
    pages: Vec<usize>,
    keys: usize,
    /// As in [`UsageCounts`].
    late_outcomes: Vec<LateOutcome>,
}

/// A run that is being packed.
struct Packer {
    run: UsageRun,
    previous: Previous,
}

/// The keys of a run, in order.
struct Keys<'a> {
    input: Input<'a>,
    /// Number of the next key, from the beginning of the run.
    next: usize,
    previous: Previous,
}

impl UsageRun {
    /// Packs counts whose stretch is counted to its end.
    pub(crate) fn pack(counts: &UsageCounts) -> Self {
        let mut keys: Vec<(&KeyOwner, &KeyUsage)> =
            counts.keys.iter().map(|(owner, usage)| (owner, &**usage)).collect();
        keys.sort_unstable_by_key(|(owner, _)| **owner);
        let mut packer = Packer::default();
        keys.into_iter().for_each(|(owner, usage)| packer.push(owner, usage));
        packer.finish(counts.late_outcomes.clone())
    }

    /// This run and the one of the stretch that follows it.
    pub(crate) fn merge(&self, later: &Self) -> Self {
        let mut outcomes: FxHashMap<KeyOwner, Vec<LateOutcome>> = FxHashMap::default();
        for outcome in &later.late_outcomes {
            outcomes.entry(outcome.owner).or_default().push(outcome.clone());
        }
        let mut packer = Packer::default();
        // Neighbours differ less in the merged run: it is hardly ever longer.
        packer.run.bytes.reserve_exact(self.bytes.len() + later.bytes.len());
        let mut others = later.keys_from(0).peekable();
        for (owner, mut usage) in self.keys_from(0) {
            while let Some((other, usage)) = others.next_if(|(other, _)| *other < owner) {
                packer.push(&other, &usage);
            }
            if let Some(last) = &mut usage.last {
                outcomes.remove(&owner).into_iter().flatten().for_each(|outcome| last.end(outcome));
            }
            if let Some((_, more)) = others.next_if(|(other, _)| *other == owner) {
                usage.extend(more);
            }
            packer.push(&owner, &usage);
        }
        others.for_each(|(other, usage)| packer.push(&other, &usage));
        packer.finish([&self.late_outcomes[..], &outcomes.into_values().flatten().collect::<Vec<_>>()].concat())
    }

    /// The counts of these keys.
    pub(crate) fn select(&self, org: OrgId, keys: &FxHashSet<KeyId>) -> UsageCounts {
        let found = keys.iter().filter_map(|key| Some(((org, *key), Box::new(self.find((org, *key))?))));
        let late = self.late_outcomes.iter().filter(|late| late.owner.0 == org && keys.contains(&late.owner.1));
        UsageCounts { keys: found.collect(), late_outcomes: late.cloned().collect(), ..UsageCounts::default() }
    }

    fn find(&self, owner: KeyOwner) -> Option<KeyUsage> {
        let first = |page: &usize| packed_usage::first_owner(&self.bytes[*page..]).expect(INTACT);
        let page = self.pages.partition_point(|page| first(page) <= owner).checked_sub(1)?;
        let mut keys = self.keys_from(page).take(PAGE);
        keys.find(|(other, _)| *other >= owner).filter(|(other, _)| *other == owner).map(|(_, usage)| usage)
    }

    /// All counts, with at most this many keys at a time, in order.
    pub(crate) fn slices(&self, length: usize) -> impl Iterator<Item = UsageCounts> {
        let mut keys = self.keys_from(0).map(|(owner, usage)| (owner, Box::new(usage))).peekable();
        let of_keys = std::iter::from_fn(move || {
            keys.peek()?;
            Some(UsageCounts { keys: keys.by_ref().take(length).collect(), ..UsageCounts::default() })
        });
        // The last ones: what a later use has replaced is not ended by them.
        let late = UsageCounts { late_outcomes: self.late_outcomes.clone(), ..UsageCounts::default() };
        of_keys.chain((!late.late_outcomes.is_empty()).then_some(late))
    }

    /// The keys from this page on.
    fn keys_from(&self, page: usize) -> Keys<'_> {
        let start = self.pages.get(page).copied().unwrap_or(self.bytes.len());
        Keys { input: Input(&self.bytes[start..]), next: page * PAGE, previous: Previous::NONE }
    }
}

/// Adds the run of the stretch that follows these. Each is kept more than twice as large as the next one: a key is
/// merged a few times, however many runs there come.
pub(crate) fn append(runs: &mut Vec<Arc<UsageRun>>, mut run: Arc<UsageRun>) {
    while let Some(before) = runs.pop_if(|before| before.keys <= 2 * run.keys) {
        run = Arc::new(before.merge(&run));
    }
    runs.push(run);
}

impl Default for Packer {
    fn default() -> Self {
        Self { run: UsageRun::default(), previous: Previous::NONE }
    }
}

impl Packer {
    /// Adds the key that follows.
    fn push(&mut self, owner: &KeyOwner, usage: &KeyUsage) {
        let run = &mut self.run;
        if run.keys.is_multiple_of(PAGE) {
            run.pages.push(run.bytes.len());
            self.previous = Previous::NONE;
        }
        run.keys += 1;
        self.previous.put(&mut run.bytes, owner, usage);
    }

    fn finish(self, late_outcomes: Vec<LateOutcome>) -> UsageRun {
        let mut run = UsageRun { late_outcomes, ..self.run };
        run.bytes.shrink_to_fit();
        run.pages.shrink_to_fit();
        run
    }
}

impl Iterator for Keys<'_> {
    type Item = (KeyOwner, KeyUsage);

    fn next(&mut self) -> Option<Self::Item> {
        if self.input.0.is_empty() {
            return None;
        }
        if self.next.is_multiple_of(PAGE) {
            self.previous = Previous::NONE;
        }
        self.next += 1;
        Some(self.previous.read(&mut self.input).expect(INTACT))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::audit::format::segment::Point;
    use crate::audit::index::usage_counts::{HourCounts, LastUseLines, LineRef};

    /// Uses of keys in this order, each with its outcome.
    fn run(keys: impl Iterator<Item = u64>) -> UsageRun {
        let mut counts = UsageCounts::default();
        let org = OrgId::from_bytes([7; 16]);
        for (number, key) in (1_u64..).zip(keys) {
            let at = |more: u64| LineRef::At(Point { segment: 9, offset: number * 227 + more });
            let usage = KeyUsage {
                hours: vec![(495_000, HourCounts { requests: 1, refusals: 0 })],
                last: Some(LastUseLines { begun: at(0), ended: Some(at(150)), open: None }),
                refusal: None,
            };
            // Neighbours in time are none in the order of their ids.
            let id = format!("abc{:06}", key * 611_953 % 1_000_000);
            counts.keys.insert((org, id.parse().unwrap()), Box::new(usage));
        }
        UsageRun::pack(&counts)
    }

    #[test]
    fn key_takes_some_bytes() {
        let run = run(0..100_000);
        let per_key = (run.bytes.len() + run.pages.len() * size_of::<usize>()) as f64 / run.keys as f64;
        assert!(per_key < 20.0, "{per_key}");
    }

    #[test]
    fn runs_are_merged_until_each_is_twice_as_long_as_the_next() {
        let mut runs = Vec::new();
        for number in 0..40 {
            append(&mut runs, Arc::new(run(number * 100..(number + 1) * 100)));
            assert!(runs.is_sorted_by(|before, next| before.keys > 2 * next.keys), "{number}");
        }
        assert!(runs.len() < 7);
        let run = runs.into_iter().reduce(|before, run| Arc::new(before.merge(&run))).unwrap();
        assert_eq!(run.slices(7).map(|counts| counts.keys.len()).sum::<usize>(), run.keys);
    }
}
