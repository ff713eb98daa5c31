//! Sums of several subjects in one value: entries in the order of the subjects, each without what its subject shares
//! with the one before.

use std::collections::BTreeMap;

use prost::encoding::encode_varint;

use super::usage_sums::{UsageSums, read_number};

/// Sums by subject: the bytes of a key's id, or of the name of a route; none for sessions, and for no listed route.
pub(super) type SumsBySubject = BTreeMap<Vec<u8>, UsageSums>;

/// One entry, whose sums are read when they are needed.
pub(super) struct Entry<'a> {
    pub(super) subject: &'a [u8],
    pub(super) requests: u64,
    pub(super) refusals: u64,
    rest: &'a [u8],
}

/// Error: the value is not what [`pack`] has made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Damaged;

impl Entry<'_> {
    /// The sums; `None` when they are damaged.
    pub(super) fn sums(&self) -> Option<UsageSums> {
        UsageSums::read(self.requests, self.refusals, &mut &*self.rest)
    }
}

/// Packs sums.
pub(super) fn pack(sums: &SumsBySubject) -> Vec<u8> {
    let mut packed = Vec::with_capacity(sums.len() * 24);
    let mut rest = Vec::new();
    let mut before: &[u8] = &[];
    for (subject, sums) in sums {
        let shared = before.iter().zip(subject).take_while(|(one, other)| one == other).count();
        rest.clear();
        sums.write(&mut rest);
        for number in [shared, subject.len() - shared] {
            encode_varint(number as u64, &mut packed);
        }
        packed.extend(&subject[shared..]);
        for number in [sums.requests, sums.refusals, rest.len() as u64] {
            encode_varint(number, &mut packed);
        }
        packed.append(&mut rest);
        before = subject;
    }
    packed
}

/// Calls `each` with the entries of a packed value.
pub(super) fn for_each(mut packed: &[u8], mut each: impl FnMut(Entry<'_>)) -> Result<(), Damaged> {
    let mut subject: Vec<u8> = Vec::new();
    while !packed.is_empty() {
        let (shared, rest_of_subject) = (read_length(&mut packed)?, read_length(&mut packed)?);
        if shared > subject.len() {
            return Err(Damaged);
        }
        subject.truncate(shared);
        subject.extend(take(&mut packed, rest_of_subject)?);
        let (requests, refusals) = (read_number(&mut packed).ok_or(Damaged)?, read_number(&mut packed).ok_or(Damaged)?);
        let length = read_length(&mut packed)?;
        let rest = take(&mut packed, length)?;
        each(Entry { subject: &subject, requests, refusals, rest });
    }
    Ok(())
}

/// Adds packed sums to others.
pub(super) fn unpack_into(packed: &[u8], sums: &mut SumsBySubject) -> Result<(), Damaged> {
    let mut is_damaged = false;
    for_each(packed, |entry| match entry.sums() {
        Some(more) => match sums.get_mut(entry.subject) {
            Some(sums) => sums.add(&more),
            None => drop(sums.insert(entry.subject.to_vec(), more)),
        },
        None => is_damaged = true,
    })?;
    if is_damaged { Err(Damaged) } else { Ok(()) }
}

fn read_length(from: &mut &[u8]) -> Result<usize, Damaged> {
    read_number(from).and_then(|number| usize::try_from(number).ok()).ok_or(Damaged)
}

fn take<'a>(from: &mut &'a [u8], length: usize) -> Result<&'a [u8], Damaged> {
    let (taken, rest) = from.split_at_checked(length).ok_or(Damaged)?;
    *from = rest;
    Ok(taken)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn packed_sums_are_unpacked_as_they_were(
            subjects in prop::collection::btree_map("[ab]{0,9}", 0..u64::MAX, 0..50),
        ) {
            let sums_of = |requests: u64| {
                let mut sums = UsageSums::default();
                (sums.requests, sums.refusals, sums.response_bytes) = (requests, 1, 7);
                sums
            };
            let sums: SumsBySubject =
                subjects.into_iter().map(|(subject, requests)| (subject.into_bytes(), sums_of(requests))).collect();
            let packed = pack(&sums);
            let mut unpacked = SumsBySubject::new();
            prop_assert_eq!(unpack_into(&packed, &mut unpacked), Ok(()));
            prop_assert_eq!(unpacked, sums);
        }

        /// Whatever is in the index, nothing panics.
        #[test]
        fn damaged_values_are_errors_or_sums(bytes in prop::collection::vec(any::<u8>(), 0..40)) {
            let _ = unpack_into(&bytes, &mut SumsBySubject::new());
        }
    }
}
