//! Fields of a key in half of the bytes of their types: a state may have millions of keys.

use std::time::Duration;

use domain::clock::Micros;
use domain::quota::Quota;

/// A time that may be missing, in eight bytes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct OptionalTime(u64);

/// A quota in 16 bytes. Its `per` is whole seconds, and at most 366 days ([`Quota::validate`]).
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct PackedQuota {
    requests: u32,
    burst: u32,
    per_seconds: u32,
    strict: bool,
}

impl OptionalTime {
    /// The last microsecond there is, in half a million years.
    const NONE: u64 = u64::MAX;

    pub(super) fn get(self) -> Option<Micros> {
        (self.0 != Self::NONE).then_some(Micros(self.0))
    }
}

impl From<Option<Micros>> for OptionalTime {
    fn from(time: Option<Micros>) -> Self {
        Self(time.map_or(Self::NONE, |time| time.0))
    }
}

impl From<Quota> for PackedQuota {
    fn from(Quota { requests, per, burst, strict }: Quota) -> Self {
        debug_assert_eq!(per.subsec_nanos(), 0, "a quota is validated before a key has it");
        let per_seconds = u32::try_from(per.as_secs()).expect("it is at most 366 days");
        Self { requests, burst, per_seconds, strict }
    }
}

impl From<PackedQuota> for Quota {
    fn from(PackedQuota { requests, burst, per_seconds, strict }: PackedQuota) -> Self {
        Self { requests, per: Duration::from_secs(per_seconds.into()), burst, strict }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::embedded::key_record::KeyRecord;

    #[test]
    fn packed_fields_say_the_same() {
        for time in [None, Some(Micros(0)), Some(Micros(1 << 60))] {
            assert_eq!(OptionalTime::from(time).get(), time);
        }
        let longest = Quota { per: Duration::from_secs(366 * 86_400), burst: 1, ..Quota::DEFAULT };
        let strict = Quota { burst: 100, strict: true, ..Quota::DEFAULT };
        for quota in [Quota::DEFAULT, longest, strict] {
            assert_eq!(Quota::from(PackedQuota::from(quota.validate().unwrap())), quota);
        }
    }

    /// Each key has a record; what few keys have is boxed.
    #[test]
    fn record_of_a_key_is_small() {
        assert!(size_of::<KeyRecord>() <= 184, "{}", size_of::<KeyRecord>());
    }
}
