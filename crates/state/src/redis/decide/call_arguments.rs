//! The keys and arguments of a decide call.

use super::call_outcome::DecideInput;
use super::decide_codec::{REQUEST_LENGTH, encode_request};
use super::key_cache::CachedKey;
use super::shared::DeciderShared;

/// Keys and arguments of a call that are encoded for it.
pub struct CallArguments {
    request: [u8; REQUEST_LENGTH],
    /// Name of the record of reported uses, and the name of the uses; empty without uses to report.
    reported_uses: String,
    uses_name: [u8; 8],
    /// Number of keys; there is one argument less.
    pub keys: usize,
}

impl CallArguments {
    /// Encodes a call about a cached key.
    pub fn new(shared: &DeciderShared, key: &CachedKey, input: &DecideInput) -> Self {
        let DecideInput { evaluation, now, report, uses } = input;
        let total = uses.map_or(0, |uses| uses.total);
        Self {
            request: encode_request(&shared.settings, key, *evaluation, total, report.as_ref(), *now),
            reported_uses: uses.map(|_| shared.names.reported_uses(key.tag())).unwrap_or_default(),
            uses_name: uses.map(|uses| uses.name).unwrap_or_default(),
            keys: if uses.is_some() { 4 } else { 3 },
        }
    }

    /// All keys and arguments, those for uses to report last.
    pub fn keys_and_arguments<'a>(
        &'a self,
        shared: &'a DeciderShared,
        key: &'a CachedKey,
    ) -> ([&'a [u8]; 4], [&'a [u8]; 3]) {
        let keys = [&*key.record, &*key.lease.org_record, &*key.user_record, self.reported_uses.as_bytes()];
        (keys, [&*shared.slots.gateway_id, &self.request, &self.uses_name])
    }
}
