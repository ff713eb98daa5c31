//! The keys and arguments of a decide call.

use super::budget::BUDGET_LENGTH;
use super::call_outcome::DecideInput;
use super::decide_codec::{
    COST_LENGTH, LONGEST_REQUEST, REQUEST_LENGTH, SIGN_LENGTH, SLOTS_LENGTH, encode_cost, encode_request, encode_sign,
    encode_slots,
};
use super::key_cache::CachedKey;
use super::shared::DeciderShared;
use crate::redis::packed::packed_number;

/// Keys and arguments of a call that are encoded for it.
pub struct CallArguments {
    request: [u8; LONGEST_REQUEST],
    /// Longer for a key with a limit of requests in flight of its own.
    request_length: usize,
    /// Name of the record of reported uses, empty without uses to report; the name of the uses, and what they took
    /// beyond a token each, if they did.
    reported_uses: String,
    uses: [u8; 16],
    uses_length: usize,
    /// The budget, of a key that has one.
    budget: Option<[u8; BUDGET_LENGTH]>,
    /// Number of keys.
    pub keys: usize,
    /// Number of arguments.
    pub arguments: usize,
}

impl CallArguments {
    /// Encodes a call about a cached key.
    pub fn new(shared: &DeciderShared, key: &CachedKey, input: &DecideInput) -> Self {
        let DecideInput { evaluation, now, reports, uses, budget } = input;
        let total = uses.map_or(0, |uses| uses.total);
        let mut request = [0; LONGEST_REQUEST];
        let (of_key, rest) = request.split_at_mut(REQUEST_LENGTH);
        encode_request(of_key, &shared.settings, key, *evaluation, total, reports.org.as_ref(), *now);
        let mut request_length = REQUEST_LENGTH;
        let mut keys = 3;
        if let Some(slots) = &key.slots {
            encode_slots(rest, slots.concurrent, reports.key.as_deref());
            request_length += SLOTS_LENGTH;
            keys += 1;
        }
        // Each admission is a sign of life in the records of the slots: only a gateway that has made none there for a
        // while tells those of the server.
        let mut reports = reports.org.as_ref().into_iter().chain(reports.key.as_deref());
        if reports.any(|report| report.is_first_since(shared.settings.lease / 4)) {
            encode_sign(&mut request[request_length..], shared.slots.sign_of(key.lease.hash_slot));
            request_length += SIGN_LENGTH;
        }
        let (tokens, units) = (evaluation.cost().tokens(), evaluation.cost().units());
        if tokens > 1 {
            encode_cost(&mut request[request_length..], tokens);
            request_length += COST_LENGTH;
        }
        let mut arguments = 2;
        let (mut of_uses, mut uses_length) = ([0; 16], 0);
        let budget = budget.as_deref().zip(key.budget.as_deref());
        // The record of what was reported is one for both.
        let reports_something = uses.is_some() || budget.is_some_and(|(call, _)| call.tells());
        keys += usize::from(reports_something);
        arguments += usize::from(uses.is_some() || budget.is_some()) + usize::from(budget.is_some());
        if let Some(uses) = uses {
            of_uses[..8].copy_from_slice(&uses.name);
            of_uses[8..].copy_from_slice(&packed_number(uses.excess));
            uses_length = if uses.excess > 0 { 16 } else { 8 };
        }
        Self {
            request,
            request_length,
            reported_uses: if reports_something { shared.names.reported_uses(key.tag()) } else { String::new() },
            budget: budget.map(|(call, budget)| call.encode(&budget.counter, units)),
            uses: of_uses,
            uses_length,
            keys,
            arguments,
        }
    }

    /// All keys and arguments, those for uses to report last.
    pub fn keys_and_arguments<'a>(
        &'a self,
        shared: &'a DeciderShared,
        key: &'a CachedKey,
    ) -> ([&'a [u8]; 5], [&'a [u8]; 4]) {
        let reported = self.reported_uses.as_bytes();
        let [slots, last] = match &key.slots {
            Some(slots) => [&*slots.lease.record, reported],
            None => [reported, &[]],
        };
        let keys = [&*key.record, &*key.lease.record, &*key.user_record, slots, last];
        let budget = self.budget.as_ref().map_or(&[][..], |budget| &budget[..]);
        let (request, uses) = (&self.request[..self.request_length], &self.uses[..self.uses_length]);
        (keys, [&*shared.slots.gateway_id, request, uses, budget])
    }
}
