//! Response fields of the rate limits: `Retry-After` of an exceeded limit, `RateLimit` and `RateLimit-Policy`
//! (draft-ietf-httpapi-ratelimit-headers-11), whose values are lists of RFC 9651. `Retry-After` of other refusals is in
//! `rejection`.

use std::cell::RefCell;

use http::header::RETRY_AFTER;
use http::{HeaderMap, HeaderName, HeaderValue};
use uuid::Uuid;

use domain::budget::BudgetStatus;
use domain::clock;
use domain::head_memory::HeadMemory;
use domain::identity::AuthMethod;
use domain::quota::{Quota, RateLimitStatus, SlotStatus};
use domain::refusal::Limit;

const RATELIMIT: HeaderName = HeaderName::from_static("ratelimit");
const RATELIMIT_POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");
/// Bytes of the longest value, with every number at its largest, and some room.
const MAX_VALUE: usize = 144;
/// Unit of limits of requests in flight.
const IN_FLIGHT: &str = ";qu=\"concurrent-requests\"";
/// Name of the limit of requests in flight of a key.
const KEY_CONCURRENCY: &str = "key-concurrent";
/// Name of a budget.
const BUDGET: &str = "quota";
/// Values of `RateLimit-Policy` that a worker keeps. Most keys share the quota of the configuration.
const KEPT_POLICIES: usize = 16;
const MICROS_PER_SECOND: u64 = 1_000_000;
/// Most seconds until a retry when no slot is left; the fewest are 1. Exchanges end at any time, so no better value is
/// known; a random one keeps the refused clients from coming back together.
const MAX_SLOT_RETRY: u128 = 3;

/// Rate-limit status of a caller, as response fields show it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RateLimitFields {
    status: RateLimitStatus,
    method: AuthMethod,
}

/// Values of `RateLimit-Policy`: made once for each quota and cloned by reference, as long as no other quota takes its
/// place in the table.
#[derive(Debug, Default)]
pub struct PolicyCache(RefCell<[Option<Policy>; KEPT_POLICIES]>);

/// Limits that a value of `RateLimit-Policy` shows, and the value.
#[derive(Debug)]
struct Policy {
    name: &'static str,
    quota: Quota,
    concurrent: u32,
    /// Requests in flight of the key, if it has a limit of its own.
    key_concurrent: Option<u32>,
    value: HeaderValue,
}

/// Slots that are free: of the organization, and of the key, if it has a limit of its own.
#[derive(Clone, Copy)]
struct FreeSlots {
    org: u32,
    key: Option<u32>,
}

/// Text of a value, on the stack until it is complete.
struct Text {
    bytes: [u8; MAX_VALUE],
    length: usize,
}

impl RateLimitFields {
    pub(super) fn new(status: RateLimitStatus, method: AuthMethod) -> Self {
        Self { status, method }
    }

    /// Authentication method of the caller.
    pub(super) fn method(&self) -> AuthMethod {
        self.method
    }

    /// Writes `RateLimit` and `RateLimit-Policy` of an admitted request.
    pub(super) fn write(&self, headers: &mut HeaderMap, policies: &PolicyCache, memory: &HeadMemory) {
        let Self { status, method } = self;
        let name = policy_name(Limit::Rate, *method);
        let tokens = (status.remaining, whole_seconds(status.full_in_us));
        let position = position(name, tokens, FreeSlots::new(status));
        let policy = policies.value(name, status);
        if let Some(budget) = &status.budget {
            return write_with_budget(headers, (&position.value(), &policy), budget);
        }
        headers.insert(RATELIMIT, memory.value(position.as_bytes()));
        headers.insert(RATELIMIT_POLICY, policy);
    }

    /// Writes `RateLimit` and `RateLimit-Policy`, and `Retry-After` for the limit that the request exceeded, if any.
    pub(super) fn write_with(&self, headers: &mut HeaderMap, exceeded: Option<Limit>, request_id: Uuid) {
        let Self { status, method } = self;
        let name = policy_name(Limit::Rate, *method);
        let next_token = whole_seconds(status.token_in_us).max(1);
        let mut tokens = (status.remaining, whole_seconds(status.full_in_us));
        let mut slots = FreeSlots::new(status);
        match exceeded {
            None => {}
            Some(Limit::Rate) => {
                // Too little for this request, and perhaps enough for one that costs less.
                tokens = (status.remaining, next_token);
                headers.insert(RETRY_AFTER, HeaderValue::from(next_token));
            }
            Some(Limit::Budget) => {
                let until =
                    status.budget.as_deref().map_or(1, |budget| whole_seconds(budget.end.since(clock::now())).max(1));
                headers.insert(RETRY_AFTER, HeaderValue::from(until));
            }
            // Slots may have been given back since the decision; the refused caller must not see them.
            Some(Limit::KeyConcurrency) => {
                slots.key = Some(0);
                headers.insert(RETRY_AFTER, HeaderValue::from(slot_retry(request_id)));
            }
            Some(Limit::Concurrency) => {
                slots.org = 0;
                headers.insert(RETRY_AFTER, HeaderValue::from(slot_retry(request_id)));
            }
        }
        let mut position = position(name, tokens, slots).value();
        if let Some(budget) = &status.budget {
            return write_with_budget(headers, (&position, &policy(name, status)), budget);
        }
        // The next one differs: HTTP/2 is not to keep it.
        position.set_sensitive(true);
        headers.insert(RATELIMIT, position);
        headers.insert(RATELIMIT_POLICY, policy(name, status));
    }
}

impl PolicyCache {
    /// Value for the limits of a caller.
    fn value(&self, name: &'static str, status: &RateLimitStatus) -> HeaderValue {
        let (quota, concurrent) = (status.quota, status.concurrent);
        let key_concurrent = status.key_slots.map(|slots| slots.concurrent);
        let limits = (name, quota, concurrent, key_concurrent);
        let place = (quota.requests ^ concurrent) as usize % KEPT_POLICIES;
        let mut kept = self.0.borrow_mut();
        match &kept[place] {
            Some(kept) if kept.limits() == limits => kept.value.clone(),
            _ => {
                let value = policy(name, status);
                kept[place] = Some(Policy { name, quota, concurrent, key_concurrent, value: value.clone() });
                value
            }
        }
    }
}

impl Policy {
    fn limits(&self) -> (&'static str, Quota, u32, Option<u32>) {
        (self.name, self.quota, self.concurrent, self.key_concurrent)
    }
}

impl FreeSlots {
    fn new(status: &RateLimitStatus) -> Self {
        let org = status.concurrent.saturating_sub(status.in_flight);
        Self { org, key: status.key_slots.map(SlotStatus::free) }
    }
}

impl Text {
    fn new() -> Self {
        Self { bytes: [0; MAX_VALUE], length: 0 }
    }

    // Inlined, the length of a constant text is known: its bytes are moved in place, instead of by a call.
    #[inline(always)]
    fn text(mut self, text: &str) -> Self {
        let end = self.length + text.len();
        self.bytes[self.length..end].copy_from_slice(text.as_bytes());
        self.length = end;
        self
    }

    fn number(self, number: impl itoa::Integer) -> Self {
        self.text(itoa::Buffer::new().format(number))
    }

    fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.length]
    }

    fn value(&self) -> HeaderValue {
        HeaderValue::from_bytes(self.as_bytes()).expect("digits and quotes are visible ASCII")
    }
}

/// Seconds until a retry when no slot is left, 1 to 3: by the random bits that a request's id ends with.
fn slot_retry(request_id: Uuid) -> u16 {
    let spread = u16::try_from(request_id.as_u128() % MAX_SLOT_RETRY).expect("a remainder below 3");
    1 + spread
}

/// Name of a limit in `RateLimit-Policy`: a key has a bucket of its own, all sessions of a user share one.
pub(super) fn policy_name(limit: Limit, method: AuthMethod) -> &'static str {
    match (limit, method) {
        (Limit::KeyConcurrency, _) => KEY_CONCURRENCY,
        (Limit::Concurrency, _) => "org",
        (Limit::Budget, _) => BUDGET,
        (Limit::Rate, AuthMethod::Session) => "user",
        (Limit::Rate, AuthMethod::ApiKey | AuthMethod::AdminSocket | AuthMethod::Token) => "key",
    }
}

/// Writes both fields with the item of a budget: what is left, the seconds until the next period; and its units, and
/// the seconds of its period.
fn write_with_budget(headers: &mut HeaderMap, (position, policy): (&HeaderValue, &HeaderValue), budget: &BudgetStatus) {
    let left = whole_seconds(budget.end.since(clock::now()));
    let window = whole_seconds(budget.end.since(budget.start));
    let items = [
        (RATELIMIT, position, format!(", \"{BUDGET}\";r={};t={left}", budget.remaining())),
        (RATELIMIT_POLICY, policy, format!(", \"{BUDGET}\";q={};w={window}", budget.units)),
    ];
    for (field, others, item) in items {
        let value = [others.as_bytes(), item.as_bytes()].concat();
        let mut value = HeaderValue::from_bytes(&value).expect("digits and quotes are visible ASCII");
        // The next one differs: HTTP/2 is not to keep it.
        value.set_sensitive(field == RATELIMIT);
        headers.insert(field, value);
    }
}

/// Text of `RateLimit`: tokens that are left, seconds until there are all of them, and slots that are free.
fn position(name: &str, (tokens, seconds): (u32, u64), slots: FreeSlots) -> Text {
    let text = Text::new().text("\"").text(name).text("\";r=").number(tokens);
    let mut text = text.text(";t=").number(seconds).text(", \"org\";r=").number(slots.org);
    if let Some(free) = slots.key {
        text = text.text(", \"").text(KEY_CONCURRENCY).text("\";r=").number(free);
    }
    text
}

/// Value of `RateLimit-Policy`.
fn policy(name: &str, status: &RateLimitStatus) -> HeaderValue {
    let quota = status.quota;
    let text = Text::new().text("\"").text(name).text("\";q=").number(quota.requests).text(";w=");
    let text = text.number(quota.per.as_secs()).text(", \"org\";q=").number(status.concurrent).text(IN_FLIGHT);
    let Some(slots) = status.key_slots else { return text.value() };
    text.text(", \"").text(KEY_CONCURRENCY).text("\";q=").number(slots.concurrent).text(IN_FLIGHT).value()
}

fn whole_seconds(micros: u64) -> u64 {
    micros.div_ceil(MICROS_PER_SECOND)
}

#[cfg(test)]
mod tests {
    use super::*;
    use domain::quota::Quota;

    fn fields(status: &RateLimitStatus, exceeded: Option<Limit>) -> [String; 3] {
        let mut headers = HeaderMap::new();
        RateLimitFields::new(status.clone(), AuthMethod::ApiKey).write_with(&mut headers, exceeded, Uuid::nil());
        [RATELIMIT, RATELIMIT_POLICY, RETRY_AFTER]
            .map(|name| headers.get(name).map(|value| value.to_str().unwrap().to_owned()).unwrap_or_default())
    }

    #[test]
    fn rate_limit_fields_are_those_of_the_contract() {
        let quota = Quota::DEFAULT;
        let mut status = RateLimitStatus {
            quota,
            remaining: 873,
            full_in_us: 456_300_000,
            token_in_us: 0,
            concurrent: 100,
            in_flight: 59,
            key_slots: None,
            budget: None,
        };
        let policy = "\"key\";q=1000;w=3600, \"org\";q=100;qu=\"concurrent-requests\"";
        let shown = fields(&status, None);
        assert_eq!(shown, ["\"key\";r=873;t=457, \"org\";r=41", policy, ""]);
        status = RateLimitStatus { remaining: 0, full_in_us: 3_600_000_000, token_in_us: 3_500_001, ..status };
        let shown = fields(&status, Some(Limit::Rate));
        assert_eq!(shown, ["\"key\";r=0;t=4, \"org\";r=41", policy, "4"]);
        let shown = fields(&status, Some(Limit::Concurrency));
        assert_eq!(shown, ["\"key\";r=0;t=3600, \"org\";r=0", policy, "1"]);
        let of_key = SlotStatus { concurrent: 20, in_flight: 8 };
        let narrow = RateLimitStatus { remaining: 873, key_slots: Some(of_key), ..status.clone() };
        let policy_of_key = format!("{policy}, \"key-concurrent\";q=20;qu=\"concurrent-requests\"");
        let shown = fields(&narrow, None);
        assert_eq!(shown, ["\"key\";r=873;t=3600, \"org\";r=41, \"key-concurrent\";r=12", &policy_of_key, ""]);
        let shown = fields(&narrow, Some(Limit::KeyConcurrency));
        assert_eq!(shown, ["\"key\";r=873;t=3600, \"org\";r=41, \"key-concurrent\";r=0", &policy_of_key, "1"]);
        let mut headers = HeaderMap::new();
        RateLimitFields::new(status, AuthMethod::Session).write_with(&mut headers, Some(Limit::Rate), Uuid::nil());
        assert_eq!(headers[RATELIMIT], "\"user\";r=0;t=4, \"org\";r=41");
        assert_eq!(headers[RATELIMIT_POLICY], policy.replace("key", "user"));
    }

    #[test]
    fn fields_of_an_admitted_request_are_those_of_any_other() {
        let policies = PolicyCache::default();
        let memory = HeadMemory::default();
        let mut status = RateLimitStatus {
            quota: Quota::DEFAULT,
            remaining: u32::MAX,
            full_in_us: u64::MAX,
            token_in_us: 0,
            concurrent: u32::MAX,
            in_flight: 1,
            key_slots: None,
            budget: None,
        };
        // Limits that share a place of the table, and the same ones again.
        let shared = u32::try_from(KEPT_POLICIES).unwrap();
        for (round, requests) in [1000, 1000, 1000 + shared, 1000, 1_000_000_000].into_iter().enumerate() {
            let longest = SlotStatus { concurrent: u32::MAX, in_flight: 0 };
            let shorter = SlotStatus { concurrent: 20, in_flight: 1 };
            let slots = [None, Some(longest), Some(shorter)];
            for (method, key_slots) in [AuthMethod::ApiKey, AuthMethod::Session].into_iter().zip(slots.repeat(2)) {
                status.key_slots = key_slots;
                status.quota.requests = requests;
                status.concurrent -= u32::try_from(round).unwrap();
                let fields = RateLimitFields::new(status.clone(), method);
                let mut written = HeaderMap::new();
                let mut expected = HeaderMap::new();
                fields.write(&mut written, &policies, &memory);
                fields.write_with(&mut expected, None, Uuid::nil());
                assert_eq!(written, expected);
            }
        }
    }

    #[test]
    fn retry_after_a_refusal_for_slots_is_random_from_1_to_3_seconds() {
        let mut counts = [0_u32; 4];
        let ids = uuid::ContextV7::new();
        for _ in 0..3000 {
            counts[usize::from(slot_retry(Uuid::new_v7(uuid::Timestamp::now(&ids))))] += 1;
        }
        assert!(counts[0] == 0 && counts[1..].iter().all(|count| *count > 800), "{counts:?}");
    }
}
