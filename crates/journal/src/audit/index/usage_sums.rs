//! Sums of uses: how many began, how they ended, and what they cost.

use std::sync::LazyLock;

use bytes::Buf;
use prost::encoding::{decode_varint, encode_varint};

use super::indexed_use::{IndexedEnd, IndexedUse};
use crate::audit::format::record::Outcome;
use domain::refusal::Refusal;

/// Names of the outcomes, by their numbers in stored sums. New ones come at the end; none is moved or removed.
const NAMES: [&str; 24] = [
    "completed",
    "decided",
    "upstream_error",
    "client_error",
    "internal_error",
    "terminated",
    "aborted",
    "unconfirmed",
    "in_doubt",
    "unknown",
    "revoked",
    "expired",
    "user_removed",
    "user_suspended",
    "key_expired",
    "key_disabled",
    "address_refused",
    "org_suspended",
    "forbidden",
    "not_found",
    "cost_over_limit",
    "rate_limited",
    "quota_exhausted",
    "too_many_in_flight",
];
/// Number of [`Outcome::Completed`], the outcome of nearly all uses.
const COMPLETED: usize = 0;

/// Sums of uses. Uses are counted where they begin, their outcomes and bytes where they end: both in the sums of the
/// hour in which they began.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UsageSums {
    /// Admitted uses, whatever became of them.
    pub requests: u64,
    /// Refused uses; see [`Outcome::is_refusal`].
    pub refusals: u64,
    completed: u64,
    /// Uses with another outcome, by its number; `None` without any.
    others: Option<Box<[u64; NAMES.len()]>>,
    /// Units that admitted uses have cost; of those that have not ended, what they have reserved. It may be below zero
    /// in the part of the journal in which a use ends that began before it.
    units: i64,
    /// Bytes of request bodies, of admitted uses that have ended.
    pub request_bytes: u64,
    /// Bytes of response bodies, of admitted uses that have ended.
    pub response_bytes: u64,
}

impl UsageSums {
    /// Adds admitted uses that begin, and the units that they reserve together.
    pub(crate) fn begin(&mut self, uses: u64, units: u64) {
        self.requests = self.requests.saturating_add(uses);
        self.units = self.units.saturating_add_unsigned(units);
    }

    /// Adds refused uses.
    pub(crate) fn refuse(&mut self, outcome: Outcome, uses: u64) {
        self.refusals = self.refusals.saturating_add(uses);
        self.count(number(outcome), uses);
    }

    /// Adds the end of admitted uses: by how many units they cost more than they had reserved, and the bytes of the
    /// bodies of requests and responses.
    pub(crate) fn end(&mut self, outcome: Outcome, uses: u64, more_units: i64, [request, response]: [u64; 2]) {
        self.count(number(outcome), uses);
        self.units = self.units.saturating_add(more_units);
        self.request_bytes = self.request_bytes.saturating_add(request);
        self.response_bytes = self.response_bytes.saturating_add(response);
    }

    /// Adds a use where it begins.
    pub(crate) fn add_use(&mut self, used: &IndexedUse) {
        let uses = used.uses();
        match used.outcome {
            Some(outcome) if outcome.is_refusal() => self.refuse(outcome, uses),
            outcome => {
                self.begin(uses, used.units);
                if let Some(outcome) = outcome {
                    self.end(outcome, uses, 0, used.bytes);
                }
            }
        }
    }

    /// Adds the end of a use that has reserved these units.
    pub(crate) fn add_end(&mut self, end: &IndexedEnd, reserved: u64) {
        let more = end.cost.map_or(0, |cost| cost.cast_signed().saturating_sub_unsigned(reserved));
        self.end(end.outcome, 1, more, end.bytes);
    }

    /// Adds other sums.
    pub fn add(&mut self, other: &Self) {
        self.requests = self.requests.saturating_add(other.requests);
        self.refusals = self.refusals.saturating_add(other.refusals);
        self.count(COMPLETED, other.completed);
        for (number, uses) in other.others.iter().flat_map(|others| others.iter().enumerate()) {
            self.count(number, *uses);
        }
        self.units = self.units.saturating_add(other.units);
        self.request_bytes = self.request_bytes.saturating_add(other.request_bytes);
        self.response_bytes = self.response_bytes.saturating_add(other.response_bytes);
    }

    /// Number of uses by outcome, without those that have none, and without outcomes that no use has had.
    pub fn outcomes(&self) -> impl Iterator<Item = (Outcome, u64)> + '_ {
        let outcome = |(number, uses): (usize, u64)| {
            let outcome = Outcome::from_name(NAMES[number])?;
            (uses > 0).then_some((outcome, uses))
        };
        self.numbered().filter_map(outcome)
    }

    /// Admitted uses that have not ended.
    pub fn open(&self) -> u64 {
        let ended = self.numbered().map(|(_, uses)| uses).fold(0, u64::saturating_add);
        self.requests.saturating_add(self.refusals).saturating_sub(ended)
    }

    /// Units that admitted uses have cost.
    pub fn units(&self) -> u64 {
        self.units.max(0).unsigned_abs()
    }

    fn numbered(&self) -> impl Iterator<Item = (usize, u64)> + '_ {
        let others = self.others.iter().flat_map(|others| others.iter().copied().enumerate());
        std::iter::once((COMPLETED, self.completed)).chain(others.filter(|(number, _)| *number != COMPLETED))
    }

    fn count(&mut self, number: usize, uses: u64) {
        if number == COMPLETED {
            self.completed = self.completed.saturating_add(uses);
        } else if uses > 0 {
            let others = self.others.get_or_insert_with(Box::default);
            others[number] = others[number].saturating_add(uses);
        }
    }

    /// Writes what [`UsageSums::read`] reads, without the requests and refusals: numbers with seven bits a byte.
    pub(super) fn write(&self, to: &mut Vec<u8>) {
        let ended: Vec<(usize, u64)> = self.numbered().filter(|(_, uses)| *uses > 0).collect();
        encode_varint(ended.len() as u64, to);
        for (number, uses) in ended {
            encode_varint(number as u64, to);
            encode_varint(uses, to);
        }
        // The end of a use of a day whose hours are together already is in a row of its own, below zero.
        let units = ((self.units << 1) ^ (self.units >> 63)).cast_unsigned();
        for number in [units, self.request_bytes, self.response_bytes] {
            encode_varint(number, to);
        }
    }

    /// Reads what [`UsageSums::write`] has written; `None` when it is damaged.
    pub(super) fn read(requests: u64, refusals: u64, from: &mut &[u8]) -> Option<Self> {
        let mut sums = Self { requests, refusals, ..Self::default() };
        for _ in 0..read_number(from)? {
            let number = usize::try_from(read_number(from)?).ok().filter(|number| *number < NAMES.len())?;
            sums.count(number, read_number(from)?);
        }
        let units = read_number(from)?;
        sums.units = (units >> 1).cast_signed() ^ -(units & 1).cast_signed();
        sums.request_bytes = read_number(from)?;
        sums.response_bytes = read_number(from)?;
        Some(sums)
    }
}

/// Reads a number with seven bits a byte; `None` when it is damaged.
pub(super) fn read_number(from: &mut &[u8]) -> Option<u64> {
    match from.split_first() {
        // Nearly every number has one byte.
        Some((byte, rest)) if *byte < 0x80 => {
            *from = rest;
            Some(u64::from(*byte))
        }
        _ => from.has_remaining().then(|| decode_varint(from).ok()).flatten(),
    }
}

/// The number of an outcome in stored sums.
fn number(outcome: Outcome) -> usize {
    static REFUSALS: LazyLock<Vec<usize>> = LazyLock::new(|| {
        Refusal::ALL.iter().map(|refusal| Outcome::of_refusal(*refusal).map_or(COMPLETED, by_name)).collect()
    });
    match outcome {
        Outcome::Completed => COMPLETED,
        Outcome::Refused(refusal) => REFUSALS[refusal as usize],
        other => by_name(other),
    }
}

fn by_name(outcome: Outcome) -> usize {
    NAMES.iter().position(|name| *name == outcome.name()).expect("a test finds a number for every outcome")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn ended() -> impl Iterator<Item = Outcome> {
        Outcome::all().filter(|outcome| *outcome != Outcome::InProgress)
    }

    #[test]
    fn every_outcome_has_a_number_of_its_own() {
        let numbers: std::collections::BTreeSet<usize> = ended().map(number).collect();
        assert_eq!(numbers.len(), ended().count());
        assert!(ended().all(|outcome| NAMES[number(outcome)] == outcome.name()));
    }

    proptest! {
        /// Sums are read as they were written, and are those of all uses.
        #[test]
        fn sums_are_read_as_they_were_written(
            uses in prop::collection::vec((0..24_usize, 1..u64::from(u32::MAX), any::<u32>()), 0..20),
            open in 0..9_u64,
        ) {
            let mut sums = UsageSums::default();
            sums.begin(open, open);
            for (place, uses, bytes) in &uses {
                let outcome = ended().nth(*place).unwrap();
                let mut more = UsageSums::default();
                if outcome.is_refusal() {
                    more.refuse(outcome, *uses);
                } else {
                    more.begin(*uses, *uses % 3);
                    more.end(outcome, *uses, -1, [u64::from(*bytes), 1]);
                }
                sums.add(&more);
            }
            let mut written = Vec::new();
            sums.write(&mut written);
            written.push(7);
            let mut rest = &written[..];
            prop_assert_eq!(UsageSums::read(sums.requests, sums.refusals, &mut rest), Some(sums.clone()));
            prop_assert_eq!(rest, [7]);
            prop_assert_eq!(sums.open(), open);
            let counted: u64 = sums.outcomes().map(|(_, uses)| uses).sum();
            prop_assert_eq!(counted, uses.iter().map(|(_, uses, _)| uses).sum::<u64>());
        }
    }
}
