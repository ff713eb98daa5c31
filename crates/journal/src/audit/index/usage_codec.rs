//! The usage of the keys in a segment as bytes: numbers with seven bits in each byte, and a CRC-32 at the end.

use super::indexed_use::KeyOwner;
use super::usage_counts::{HourCounts, KeyUsage, LastUseLines, LateOutcome, LineRef, UsageCounts};
use crate::audit::format::pack::{Input, put};
use crate::audit::format::segment::Point;
use domain::identity::OrgId;
use domain::key::KeyId;

/// Bytes of the CRC-32 at the end.
const CRC: usize = 4;

/// Encodes the usage of keys. All lines are named by their places.
pub(crate) fn encode(counts: &UsageCounts) -> Vec<u8> {
    let mut out = Vec::with_capacity(counts.keys.len() * 64);
    put(&mut out, counts.keys.len() as u64);
    for (owner, usage) in &counts.keys {
        put_owner(&mut out, owner);
        put(&mut out, usage.hours.len() as u64);
        for (hour, HourCounts { requests, refusals }) in &usage.hours {
            [*hour, *requests, *refusals].into_iter().for_each(|number| put(&mut out, number));
        }
        put_line(&mut out, usage.refusal.as_ref());
        put_line(&mut out, usage.last.as_ref().map(|last| &last.begun));
        if let Some(last) = &usage.last {
            out.extend_from_slice(&last.id.to_le_bytes());
            put_line(&mut out, last.ended.as_ref());
        }
    }
    put(&mut out, counts.late_outcomes.len() as u64);
    for LateOutcome { owner, id, line } in &counts.late_outcomes {
        put_owner(&mut out, owner);
        out.extend_from_slice(&id.to_le_bytes());
        put_line(&mut out, Some(line));
    }
    out.extend_from_slice(&crc32fast::hash(&out).to_le_bytes());
    out
}

/// Decodes the usage of the keys that `select` selects, in this segment. `None` when the bytes are damaged.
pub(crate) fn decode(bytes: &[u8], segment: u64, select: impl Fn(&KeyOwner) -> bool) -> Option<UsageCounts> {
    let (body, crc) = bytes.split_at_checked(bytes.len().checked_sub(CRC)?)?;
    (crc32fast::hash(body).to_le_bytes() == crc).then_some(())?;
    let mut from = UsageInput { rest: Input(body), segment };
    let mut counts = UsageCounts::default();
    for _ in 0..from.number()? {
        let (owner, usage) = from.usage()?;
        if select(&owner) {
            counts.keys.insert(owner, usage);
        }
    }
    for _ in 0..from.number()? {
        let late = LateOutcome { owner: from.owner()?, id: from.id()?, line: from.line()?? };
        counts.late_outcomes.extend(select(&late.owner).then_some(late));
    }
    Some(counts)
}

fn put_owner(out: &mut Vec<u8>, (org, key): &KeyOwner) {
    out.extend_from_slice(org.as_bytes());
    out.extend_from_slice(key.as_bytes());
}

/// The offset of a line plus 1; 0 for none.
fn put_line(out: &mut Vec<u8>, line: Option<&LineRef>) {
    put(
        out,
        match line {
            Some(LineRef::At(point)) => point.offset + 1,
            // A copy of a line belongs to no segment.
            Some(LineRef::Stored(_)) | None => 0,
        },
    );
}

/// Bytes that are not decoded yet, of this segment.
struct UsageInput<'a> {
    rest: Input<'a>,
    segment: u64,
}

impl UsageInput<'_> {
    fn bytes<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.rest.bytes(N)?.try_into().ok()
    }

    fn number(&mut self) -> Option<u64> {
        self.rest.number()
    }

    fn id(&mut self) -> Option<u128> {
        self.bytes().map(u128::from_le_bytes)
    }

    fn owner(&mut self) -> Option<KeyOwner> {
        let org = OrgId::from_bytes(self.bytes()?);
        let key: [u8; KeyId::LENGTH] = self.bytes()?;
        Some((org, std::str::from_utf8(&key).ok()?.parse().ok()?))
    }

    /// A line: `None` when the bytes are damaged, `Some(None)` for none.
    fn line(&mut self) -> Option<Option<LineRef>> {
        let offset = self.number()?.checked_sub(1);
        Some(offset.map(|offset| LineRef::At(Point { segment: self.segment, offset })))
    }

    fn usage(&mut self) -> Option<(KeyOwner, KeyUsage)> {
        let owner = self.owner()?;
        let mut usage = KeyUsage::default();
        for _ in 0..self.number()? {
            let [hour, requests, refusals] = [self.number()?, self.number()?, self.number()?];
            usage.hours.push((hour, HourCounts { requests, refusals }));
        }
        usage.refusal = self.line()?;
        if let Some(begun) = self.line()? {
            usage.last = Some(LastUseLines { id: self.id()?, begun, ended: self.line()? });
        }
        Some((owner, usage))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn line() -> impl Strategy<Value = LineRef> {
        (0..u64::MAX - 1).prop_map(|offset| LineRef::At(Point { segment: 7, offset }))
    }

    fn owner() -> impl Strategy<Value = KeyOwner> {
        let key = "[0-9A-Za-z]{9}".prop_map(|key| key.parse().expect("it is an id"));
        (any::<[u8; 16]>().prop_map(OrgId::from_bytes), key)
    }

    fn usage() -> impl Strategy<Value = KeyUsage> {
        let hour = (any::<u64>(), any::<u64>(), any::<u64>());
        let hours = hour.prop_map(|(hour, requests, refusals)| (hour, HourCounts { requests, refusals }));
        let last = (any::<u128>(), line(), prop::option::of(line()));
        let last = last.prop_map(|(id, begun, ended)| LastUseLines { id, begun, ended });
        (prop::collection::vec(hours, 0..4), prop::option::of(last), prop::option::of(line()))
            .prop_map(|(hours, last, refusal)| KeyUsage { hours, last, refusal })
    }

    fn counts() -> impl Strategy<Value = UsageCounts> {
        let late = (owner(), any::<u128>(), line()).prop_map(|(owner, id, line)| LateOutcome { owner, id, line });
        let keys = prop::collection::vec((owner(), usage()), 0..8);
        (keys, prop::collection::vec(late, 0..4)).prop_map(|(keys, late_outcomes)| UsageCounts {
            keys: keys.into_iter().collect(),
            late_outcomes,
            ..UsageCounts::default()
        })
    }

    proptest! {
        #[test]
        fn usage_is_decoded_as_it_was_encoded(counts in counts()) {
            let decoded = decode(&encode(&counts), 7, |_| true).expect("it is whole");
            prop_assert_eq!((decoded.keys, decoded.late_outcomes), (counts.keys, counts.late_outcomes));
        }

        #[test]
        fn damaged_usage_is_not_decoded(counts in counts(), at in any::<prop::sample::Index>(), bit in 0..8) {
            let mut bytes = encode(&counts);
            *at.get_mut(&mut bytes) ^= 1_u8 << bit;
            prop_assert!(decode(&bytes, 7, |_| true).is_none());
        }
    }
}
