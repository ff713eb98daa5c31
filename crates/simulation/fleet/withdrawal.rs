//! The withdrawal of a key: most are revoked, some are disabled.

use domain::clock::Micros;
use domain::key::KeyId;
use domain::key::policy::{Disabled, DisabledBy, KeyPolicy};
use state::redis::Revocation;

/// Mark of a key that is disabled.
const DISABLED: Disabled = Disabled { at: Micros(1), by: DisabledBy::Leak };

/// Every fourth key is disabled instead of revoked. That can be taken back, so it is numbered, and written again
/// likewise; until then it is not refused.
fn is_disabled(key: usize) -> bool {
    key % 4 == 3
}

/// The fields of a key's record that a withdrawal sets; the first one says that it is withdrawn.
pub fn withdrawal(key: usize) -> Vec<(&'static [u8], String)> {
    if is_disabled(key) {
        let policy = KeyPolicy { disabled: Some(DISABLED), ..KeyPolicy::default() };
        // Keys with a limit of their own have a policy before.
        vec![(&b"disablings"[..], "1".to_owned()), (&b"policy"[..], policy.to_json())]
    } else {
        vec![(&b"revoked"[..], "1".to_owned())]
    }
}

/// The withdrawal as a gateway keeps it.
pub fn revocation(key: usize, id: KeyId) -> Revocation {
    if is_disabled(key) {
        Revocation::Disabled { key: id, number: 1, disabled: DISABLED }
    } else {
        Revocation::Key { key: id, at: Micros(1) }
    }
}

/// The entry of the log of revocations.
pub fn log_entry(key: usize, id: KeyId) -> String {
    if is_disabled(key) { format!("policy {id} 1 {} 1 {} leak", u64::MAX, DISABLED.at.0) } else { format!("key {id}") }
}
