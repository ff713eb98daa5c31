//! Arguments and replies of `decide.lua`.

use std::sync::Arc;

use redis::Value;

use super::budget::BudgetCall;
use super::key_cache::CachedKey;
use crate::Unavailable;
use crate::bucket::{Bucket, capacity};
use crate::redis::packed::{packed_number, unpack, unpack_signed, unsigned};
use crate::redis::record_codec::{Fields, StoredRecords};
use crate::redis::settings::Settings;
use crate::redis::slots::{PendingReport, SignOfLife, SlotLease};
use domain::budget::{BudgetStatus, Cost};
use domain::clock::Micros;
use domain::quota::{Quota, RateLimitStatus, SlotStatus};
use domain::refusal::Refusal;
use redis_client::CommandError;

/// Code of an admission.
const ADMITTED: u64 = 0;
/// Code of a reply: the budget is in another period.
const OTHER_PERIOD: u64 = 19;
/// Code of a reply: Redis has no lease entry of this generation.
const UNREGISTERED: u64 = 9;
/// Code of a request for the rate-limit status only. It counts as a refusal, so the script takes nothing.
const STATUS_ONLY: u64 = 10;
/// Length of the packed argument: three versions and thirteen numbers.
pub(super) const REQUEST_LENGTH: usize = 8 * 16;
/// Length of what is added to it of a key with a limit of requests in flight of its own.
pub(super) const SLOTS_LENGTH: usize = 8 * 4;
/// Length of the signs of life that are added.
pub(super) const SIGN_LENGTH: usize = 8 * 2;
/// Length of a cost that is added: of a request that costs more than one token.
pub(super) const COST_LENGTH: usize = 8;
/// Length of the packed argument with all of these.
pub(super) const LONGEST_REQUEST: usize = REQUEST_LENGTH + SLOTS_LENGTH + SIGN_LENGTH + COST_LENGTH;

/// Length of a packed decision, without the slots of the key.
const DECISION_LENGTH: usize = 8 * 5;
/// Length of what is spent of a budget, at the end.
const SPENT_LENGTH: usize = 8 * 2;

/// A decide call without a result.
#[derive(Debug, thiserror::Error)]
pub enum DecideError {
    /// The command failed.
    #[error(transparent)]
    Command(#[from] CommandError),
    /// The script ran, but a resync that began meanwhile did not count the slot: Redis has forgotten it.
    #[error("the reply came after a resync of the slot lease")]
    Fenced,
    /// The records changed again and again.
    #[error("the records kept changing")]
    Contended,
}

impl DecideError {
    /// Returns whether Redis has given no answer, so that an offline decision may stand in for it.
    pub fn allows_offline(&self) -> bool {
        !matches!(self, Self::Fenced)
    }
}

impl From<&DecideError> for Unavailable {
    fn from(error: &DecideError) -> Self {
        match error {
            DecideError::Command(error) => error.into(),
            DecideError::Fenced => Self::Unreachable,
            DecideError::Contended => Self::Overloaded,
        }
    }
}

/// The gateway's evaluation of its cached records, which the script applies if they are current.
#[derive(Clone, Copy, Debug)]
pub enum Evaluation {
    /// The records allow the request, which costs so much.
    Allowed {
        /// Its cost.
        cost: Cost,
    },
    /// The records refuse it.
    Refused(Refusal),
    /// There is no request: only the rate-limit status is read.
    StatusOnly,
}

impl Evaluation {
    /// Cost of the request if it is admitted.
    pub(super) fn cost(self) -> Cost {
        if let Self::Allowed { cost } = self { cost } else { Cost::ONE }
    }

    fn code(self) -> u64 {
        match self {
            Self::Allowed { .. } => ADMITTED,
            Self::Refused(refusal) => {
                refusal.row().redis_code.expect("records refuse only for reasons that have a code")
            }
            Self::StatusOnly => STATUS_ONLY,
        }
    }
}

/// Reply of the script.
pub(super) enum DecideReply {
    /// A decision, based on the versions in the request.
    Decided(Decided),
    /// The records have other versions than those in the request; these are the current records.
    Stale(Box<StoredRecords>),
    /// There is no such key.
    Unknown,
    /// By the clock of Redis, which is this, the budget is in another period.
    OtherPeriod(Micros),
    /// Redis has no lease entry of this gateway in this generation: of the key's slots, or of the organization's.
    Unregistered { of_key: bool },
}

/// A decision of Redis.
pub struct Decided {
    /// `None` when a token and a slot were taken.
    pub(super) refusal: Option<Refusal>,
    /// Level of the bucket; below zero while uses are repaid.
    pub(super) level: i64,
    /// Slots of the organization that are taken.
    pub(super) taken: u32,
    /// Those of them that this gateway holds, as Redis counts them: releases in flight are still included.
    held: u32,
    /// Uses of the key, this one included if it was admitted.
    pub(super) uses: u64,
    /// Slots of a key with a limit of its own.
    pub(super) of_key: Option<KeySlotCounts>,
    /// The budget, of a key that has one.
    pub(super) budget: Option<BudgetStatus>,
}

/// Slots of a key, as Redis counts them.
#[derive(Clone, Copy)]
pub(super) struct KeySlotCounts {
    /// Slots that are taken.
    pub(super) taken: u32,
    /// Those of them that this gateway holds.
    held: u32,
}

/// The argument that matches no version, so that the script returns the records.
pub fn encode_read() -> [u8; REQUEST_LENGTH] {
    [0; REQUEST_LENGTH]
}

/// Encodes the argument for a decision about a cached key. `unreported` is the total of its unreported uses.
pub(super) fn encode_request(
    packed: &mut [u8],
    settings: &Settings,
    key: &CachedKey,
    evaluation: Evaluation,
    unreported: u64,
    report: Option<&PendingReport>,
    now: Micros,
) {
    let quota = key.quota;
    let [released, generation, may_register] = report_numbers(report);
    let versions = [key.key_version, key.org_version, key.user_version];
    let numbers = [
        evaluation.code(),
        key.valid_until().0,
        u64::from(quota.inflow()),
        quota.per_micros(),
        capacity(quota),
        u64::from(key.concurrent),
        unreported,
        released,
        settings.lease_micros(),
        generation,
        may_register,
        settings.script_time(now),
        key.quota_age(now),
    ];
    write_fields(packed, versions.into_iter().chain(numbers.map(packed_number)));
}

/// Encodes the numbers of a key's slots, of which there are so many.
pub(super) fn encode_slots(packed: &mut [u8], concurrent: u32, report: Option<&PendingReport>) {
    let [released, generation, may_register] = report_numbers(report);
    let numbers = [u64::from(concurrent), released, generation, may_register];
    write_fields(packed, numbers.map(packed_number).into_iter());
}

/// Encodes the signs of life of the server.
pub(super) fn encode_sign(packed: &mut [u8], sign: SignOfLife) {
    write_fields(packed, [sign.since, sign.last].map(packed_number).into_iter());
}

/// Encodes the cost of a request.
pub(super) fn encode_cost(packed: &mut [u8], cost: u32) {
    write_fields(packed, [packed_number(cost.into())].into_iter());
}

/// Released slots, generation, and 1 if Redis may create the lease. Without a report nothing is acquired, and the
/// script looks at none of the three.
fn report_numbers(report: Option<&PendingReport>) -> [u64; 3] {
    report.map_or([0, 0, 1], |report| [u64::from(report.released), report.generation, u64::from(report.may_register)])
}

fn write_fields(packed: &mut [u8], values: impl Iterator<Item = [u8; 8]>) {
    let (fields, _) = packed.as_chunks_mut();
    fields.iter_mut().zip(values).for_each(|(field, value): (&mut [u8; 8], _)| *field = value);
}

/// Decodes the reply to a read of records; `None` when there is no such key.
///
/// # Errors
/// The reply is none to a read.
pub fn decode_read(reply: Value) -> Result<Option<StoredRecords>, CommandError> {
    match DecideReply::decode(reply, None)? {
        DecideReply::Stale(records) => Ok(Some(*records)),
        DecideReply::Unknown => Ok(None),
        DecideReply::Decided(_) | DecideReply::Unregistered { .. } | DecideReply::OtherPeriod(_) => {
            Err(CommandError::UnexpectedReply)
        }
    }
}

impl DecideReply {
    /// Decodes a reply: packed numbers for a decision, the three records for stale versions. `budget` is that of the
    /// call, if it had one.
    pub(super) fn decode(reply: Value, budget: Option<&BudgetCall>) -> Result<Self, CommandError> {
        match reply {
            Value::BulkString(packed) => Self::decode_packed(&packed, budget),
            Value::Array(records) => {
                let [key, org, user]: [Value; 3] = records.try_into().map_err(|_| CommandError::UnexpectedReply)?;
                let key = Fields::decode(key)?.ok_or(CommandError::UnexpectedReply)?.key()?;
                let org = Fields::decode(org)?.ok_or(CommandError::UnexpectedReply)?.org()?;
                let user = Fields::decode(user)?.map(|fields| fields.user()).transpose()?;
                Ok(Self::Stale(Box::new(StoredRecords { key, org, user })))
            }
            _ => Err(CommandError::UnexpectedReply),
        }
    }

    fn decode_packed(packed: &[u8], budget: Option<&BudgetCall>) -> Result<Self, CommandError> {
        let (packed, rest) = packed.split_at(packed.len().min(DECISION_LENGTH));
        let [code, level, numbers @ ..] = unpack_signed::<5>(packed).ok_or(CommandError::UnexpectedReply)?;
        let [taken, uses, held] = numbers.map(unsigned);
        let code = unsigned(code);
        let refusal = match code {
            ADMITTED => None,
            OTHER_PERIOD => return Ok(Self::OtherPeriod(Micros(unsigned(level)))),
            UNREGISTERED => return Ok(Self::Unregistered { of_key: level != 0 }),
            // Any refusal will do: only the numbers of the reply are used.
            STATUS_ONLY => Some(Refusal::Unknown),
            code => match Refusal::from_redis(code).ok_or(CommandError::UnexpectedReply)? {
                Refusal::Unknown => return Ok(Self::Unknown),
                refusal => Some(refusal),
            },
        };
        let [taken, held] = [taken, held].map(slot_count);
        let (of_key, spent) = rest.split_at(rest.len().saturating_sub(budget.map_or(0, |_| SPENT_LENGTH)));
        let of_key = if of_key.is_empty() { None } else { Some(KeySlotCounts::decode(of_key)?) };
        let status = |call: &BudgetCall| unpack(spent).map(|spent| call.status(spent));
        let budget = budget.map(|call| status(call).ok_or(CommandError::UnexpectedReply)).transpose()?;
        Ok(Self::Decided(Decided { refusal, level, taken, held, uses, of_key, budget }))
    }
}

fn slot_count(slots: u64) -> u32 {
    u32::try_from(slots).unwrap_or(u32::MAX)
}

impl KeySlotCounts {
    fn decode(packed: &[u8]) -> Result<Self, CommandError> {
        let [taken, held] = unpack(packed).ok_or(CommandError::UnexpectedReply)?.map(slot_count);
        Ok(Self { taken, held })
    }
}

impl Decided {
    /// Slots of the organization that other gateways hold.
    pub(super) fn held_elsewhere(&self) -> u32 {
        self.taken.saturating_sub(self.held)
    }

    /// Slots of the key that other gateways hold.
    pub(super) fn key_slots_elsewhere(&self) -> u32 {
        self.of_key.map_or(0, |counts| counts.taken.saturating_sub(counts.held))
    }

    /// The lease whose slots are all taken, of a request about this key that was refused for that.
    pub fn exhausted_lease<'a>(&self, key: &'a CachedKey) -> &'a Arc<SlotLease> {
        let of_key = key.slots.as_deref().filter(|_| self.refusal == Some(Refusal::KeyTooManyInFlight));
        of_key.map_or(&key.lease, |slots| &slots.lease)
    }

    /// The refusal of a request for lack of slots.
    pub(super) fn slot_refusal(&self) -> Refusal {
        self.refusal.unwrap_or_else(|| unreachable!("the request was refused"))
    }

    /// The rate-limit status after a request of this cost. Redis knows best what other gateways hold; this gateway
    /// knows best what it holds itself.
    pub(super) fn rate_limit_status(&self, key: &CachedKey, cost: u32) -> RateLimitStatus {
        let in_flight = self.held_elsewhere().saturating_add(key.lease.held());
        let key_slots = key.slot_status(self.key_slots_elsewhere());
        let bucket = Bucket { level: self.level, at: Micros(0) };
        let status = rate_limit_status((bucket, key.quota), cost, key.concurrent, in_flight, key_slots);
        RateLimitStatus { budget: self.budget.map(Box::new), ..status }
    }
}

/// The rate-limit status of a key with this bucket, after a request of this cost.
pub(super) fn rate_limit_status(
    (bucket, quota): (Bucket, Quota),
    cost: u32,
    concurrent: u32,
    in_flight: u32,
    key_slots: Option<SlotStatus>,
) -> RateLimitStatus {
    RateLimitStatus {
        quota,
        remaining: bucket.remaining(quota),
        full_in_us: bucket.full_in_us(quota),
        token_in_us: bucket.tokens_in_us(quota, cost),
        concurrent,
        in_flight,
        key_slots,
        budget: None,
    }
}
