//! Usage of one key in packed form, as runs of keys in order have it ([`super::usage_run`]).
//!
//! ```text
//! shared bytes and kinds | other bytes of the key | number of hours | hour, requests, refusals …
//!     | line of the last use | line of its outcome, or its id while it is open | line of the last refusal
//! ```
//!
//! - Of a key, the bytes that it does not share with the key before; of an hour, a segment and an offset, the
//!   difference to the one before. All numbers have seven bits in each byte.

use super::indexed_use::KeyOwner;
use super::usage_counts::{HourCounts, KeyUsage, LastUseLines, LineRef};
use crate::audit::format::pack::{Input, put, unzigzag, zigzag};
use crate::audit::format::segment::Point;
use domain::identity::OrgId;
use domain::key::KeyId;

/// Bytes of an organization and a key.
const OWNER: usize = 16 + KeyId::LENGTH;
/// Bits of the first byte that have the number of shared bytes.
const SHARED: u8 = 0x1f;
/// Kinds of the last use, in the next two bits of the first byte; zero: none.
const WHOLE: u8 = 1 << 5;
const ENDED: u8 = 2 << 5;
const OPEN: u8 = 3 << 5;
/// Bit of the first byte of a key that was refused.
const REFUSED: u8 = 1 << 7;

const _: () = assert!(OWNER <= SHARED as usize);

/// The key before and the numbers before, from which the next ones differ. It begins anew with each page.
pub(super) struct Previous {
    owner: Option<[u8; OWNER]>,
    hour: u64,
    point: Point,
}

impl Previous {
    pub(super) const NONE: Self = Self { owner: None, hour: 0, point: Point::START };

    /// Appends the usage of a key.
    pub(super) fn put(&mut self, out: &mut Vec<u8>, owner: &KeyOwner, usage: &KeyUsage) {
        let KeyUsage { hours, last, refusal } = usage;
        let kind = last.as_ref().map_or(0, kind) | refusal.as_ref().map_or(0, |_| REFUSED);
        self.put_owner(out, owner, kind);
        put(out, hours.len() as u64);
        for (hour, HourCounts { requests, refusals }) in hours {
            put(out, zigzag(hour.wrapping_sub(self.hour)));
            [*requests, *refusals].into_iter().for_each(|count| put(out, count));
            self.hour = *hour;
        }
        if let Some(LastUseLines { begun, ended, open }) = last {
            self.put_line(out, begun);
            ended.iter().for_each(|line| self.put_line(out, line));
            open.iter().for_each(|id| out.extend_from_slice(&id.to_le_bytes()));
        }
        refusal.iter().for_each(|line| self.put_line(out, line));
    }

    fn put_owner(&mut self, out: &mut Vec<u8>, (org, key): &KeyOwner, kind: u8) {
        let mut owner = [0; OWNER];
        let (first, second) = owner.split_at_mut(OWNER - KeyId::LENGTH);
        first.copy_from_slice(org.as_bytes());
        second.copy_from_slice(key.as_bytes());
        let before = self.owner.iter().flatten();
        let shared = owner.iter().zip(before).take_while(|(byte, before)| byte == before).count();
        out.push(shared as u8 | kind);
        out.extend_from_slice(&owner[shared..]);
        self.owner = Some(owner);
    }

    fn put_line(&mut self, out: &mut Vec<u8>, line: &LineRef) {
        let LineRef::At(Point { segment, offset }) = *line else {
            unreachable!("usage that is packed has no copies of lines: they are made when it is unpacked")
        };
        put(out, zigzag(segment.wrapping_sub(self.point.segment)));
        put(out, zigzag(offset.wrapping_sub(self.point.offset)));
        self.point = Point { segment, offset };
    }

    /// Reads the next key and its usage; `None` at the end.
    pub(super) fn read(&mut self, input: &mut Input<'_>) -> Option<(KeyOwner, KeyUsage)> {
        let first = input.byte()?;
        let shared = usize::from(first & SHARED);
        let owner = self.owner.insert(self.owner.unwrap_or([0; OWNER]));
        owner.get_mut(shared..)?.copy_from_slice(input.bytes(OWNER.checked_sub(shared)?)?);
        let owner = owner_at(&owner[..])?;
        let count = usize::try_from(input.number()?).ok()?;
        let mut usage = KeyUsage { hours: Vec::with_capacity(count), last: None, refusal: None };
        for _ in 0..count {
            self.hour = self.hour.wrapping_add(unzigzag(input.number()?));
            let counts = HourCounts { requests: input.number()?, refusals: input.number()? };
            usage.hours.push((self.hour, counts));
        }
        let kind = first & OPEN;
        if kind != 0 {
            let begun = self.read_line(input)?;
            let ended = if kind == ENDED { Some(self.read_line(input)?) } else { None };
            let open = if kind == OPEN { Some(u128::from_le_bytes(*input.bytes(16)?.first_chunk()?)) } else { None };
            usage.last = Some(LastUseLines { begun, ended, open });
        }
        if first & REFUSED != 0 {
            usage.refusal = Some(self.read_line(input)?);
        }
        Some((owner, usage))
    }

    fn read_line(&mut self, input: &mut Input<'_>) -> Option<LineRef> {
        let Point { segment, offset } = self.point;
        let segment = segment.wrapping_add(unzigzag(input.number()?));
        let offset = offset.wrapping_add(unzigzag(input.number()?));
        self.point = Point { segment, offset };
        Some(LineRef::At(self.point))
    }
}

/// The kind of a last use.
fn kind(last: &LastUseLines) -> u8 {
    match last {
        LastUseLines { open: Some(_), .. } => OPEN,
        LastUseLines { ended: Some(_), .. } => ENDED,
        LastUseLines { ended: None, .. } => WHOLE,
    }
}

/// The key whose bytes these begin with; `None` when they are no key.
fn owner_at(bytes: &[u8]) -> Option<KeyOwner> {
    let (org, rest) = bytes.split_first_chunk()?;
    let key = std::str::from_utf8(rest.get(..KeyId::LENGTH)?).ok()?;
    Some((OrgId::from_bytes(*org), key.parse().ok()?))
}

/// The first key of a page, which shares no byte with a key before.
pub(super) fn first_owner(page: &[u8]) -> Option<KeyOwner> {
    owner_at(page.get(1..)?)
}
