//! The one question of a decision and its answer, as `decide.lua` packs them.

use redis::Value;

use crate::clock::Micros;
use crate::quota::{Quota, RateLimitStatus};
use crate::refusal::Refusal;
use crate::state::bucket::Bucket;
use crate::state::redis::client::CommandError;
use crate::state::redis::decide::key_cache::CachedKey;
use crate::state::redis::record_codec::{Fields, StoredKey, StoredOrg, pack, unpack};
use crate::state::redis::settings::{Clock, Settings};
use crate::state::redis::slots::slot_report::PendingReport;

/// The codes that are no refusal.
const ADMITTED: u64 = 0;
const UNREGISTERED: u64 = 9;
/// A verdict that only looks where the key stands; what is refused for no reason takes nothing.
const LOOK: u64 = 10;

/// What is to be decided about a key.
#[derive(Clone, Copy)]
pub(in crate::state::redis) enum Verdict {
    /// The records allow it.
    Allowed,
    /// They refuse it.
    Refused(Refusal),
    /// It is only asked where the key stands.
    Look,
}

/// What Redis answers.
pub(in crate::state::redis) enum Answer {
    /// Decided, as of the versions that were named.
    Decided(Decided),
    /// There are other versions, or none were named.
    Stale(Box<(StoredKey, StoredOrg)>),
    /// There is no such key.
    Unknown,
    /// Redis does not know this gateway's lease.
    Unregistered,
}

/// A decision.
pub(in crate::state::redis) struct Decided {
    /// None when a token and a slot were taken.
    pub(in crate::state::redis) refusal: Option<Refusal>,
    pub(in crate::state::redis) level: u64,
    /// The slots that are taken.
    pub(in crate::state::redis) taken: u32,
    /// Those of them that this gateway holds, as Redis counts them: not yet without what is being released.
    held: u32,
    pub(in crate::state::redis) uses: u64,
}

/// The question when nothing is known: it is answered with the records.
pub(in crate::state::redis) fn encode_read() -> Vec<u8> {
    vec![0; 8 * 14]
}

/// The question about a key as it is known.
pub(in crate::state::redis) fn encode_request(
    settings: &Settings,
    known: &CachedKey,
    verdict: Verdict,
    owed: u64,
    report: Option<&PendingReport>,
    now: Micros,
) -> Vec<u8> {
    let verdict = match verdict {
        Verdict::Allowed => ADMITTED,
        Verdict::Refused(refusal) => {
            refusal.row().redis_code.expect("records refuse only for reasons that have a code")
        }
        Verdict::Look => LOOK,
    };
    let quota = known.quota;
    let (released, generation, fresh) =
        report.map_or((0, 0, true), |report| (report.released, report.generation, report.fresh));
    let mut packed = Vec::with_capacity(8 * 14);
    packed.extend_from_slice(&known.key_version);
    packed.extend_from_slice(&known.org_version);
    let numbers = [
        verdict,
        known.valid_until().0,
        u64::from(quota.requests),
        quota.per_micros(),
        Bucket::full(quota, now).level,
        u64::from(known.concurrent),
        owed,
        u64::from(released),
        u64::try_from(settings.lease.as_micros()).unwrap_or(u64::MAX),
        generation,
        u64::from(fresh),
        chosen(settings, now),
    ];
    numbers.into_iter().for_each(|number| pack(&mut packed, number));
    packed
}

/// The time that a script is to take for now; 0 for the server's.
pub(in crate::state::redis) fn chosen(settings: &Settings, now: Micros) -> u64 {
    match settings.clock {
        Clock::Server => 0,
        Clock::Caller => now.0,
    }
}

impl Answer {
    pub(in crate::state::redis) fn read(value: Value) -> Result<Self, CommandError> {
        match value {
            Value::BulkString(packed) => Self::packed(&packed),
            Value::Array(records) => {
                let [key, org]: [Value; 2] = records.try_into().map_err(|_| CommandError::UnexpectedReply)?;
                let key = Fields::read(key)?.ok_or(CommandError::UnexpectedReply)?.key()?;
                let org = Fields::read(org)?.ok_or(CommandError::UnexpectedReply)?.org()?;
                Ok(Self::Stale(Box::new((key, org))))
            }
            _ => Err(CommandError::UnexpectedReply),
        }
    }

    fn packed(packed: &[u8]) -> Result<Self, CommandError> {
        let [code, level, taken, uses, held] = unpack(packed).ok_or(CommandError::UnexpectedReply)?;
        let refusal = match code {
            ADMITTED => None,
            UNREGISTERED => return Ok(Self::Unregistered),
            // A look: what the refusal is does not matter.
            LOOK => Some(Refusal::Unknown),
            code => match Refusal::from_redis(code).ok_or(CommandError::UnexpectedReply)? {
                Refusal::Unknown => return Ok(Self::Unknown),
                refusal => Some(refusal),
            },
        };
        let [taken, held] = [taken, held].map(|slots| u32::try_from(slots).unwrap_or(u32::MAX));
        Ok(Self::Decided(Decided { refusal, level, taken, held, uses }))
    }
}

impl Decided {
    /// Where the key stands. What the others hold Redis knows best, and what this gateway holds it knows itself.
    pub(in crate::state::redis) fn rate_limit_status(&self, known: &CachedKey) -> RateLimitStatus {
        let in_flight = self.taken.saturating_sub(self.held).saturating_add(known.lease.held());
        rate_limit_status(Bucket { level: self.level, at: Micros(0) }, known.quota, known.concurrent, in_flight)
    }
}

/// Where a key with this bucket stands.
pub(in crate::state::redis) fn rate_limit_status(
    bucket: Bucket,
    quota: Quota,
    concurrent: u32,
    in_flight: u32,
) -> RateLimitStatus {
    RateLimitStatus {
        quota,
        remaining: bucket.remaining(quota),
        full_in_us: bucket.full_in_us(quota),
        token_in_us: bucket.token_in_us(quota),
        concurrent,
        in_flight,
    }
}
