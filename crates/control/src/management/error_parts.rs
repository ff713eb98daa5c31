//! Parts of the texts of errors, for values that may not be known.

use domain::clock::Micros;
use domain::key::KeyId;

/// ` by ada@example.com at 2026-11-20T21:08:00.000000Z`, or what of it is known.
pub(super) fn rotation_text(by: Option<&str>, at: Option<Micros>) -> String {
    let by = by.map(|by| format!(" by {by}")).unwrap_or_default();
    let at = at.map(|at| format!(" at {at}")).unwrap_or_default();
    format!("{by}{at}")
}

/// ` abcDEF123`; empty for a key that is not named.
pub(super) fn key_text(key: &Option<KeyId>) -> String {
    key.map(|key| format!(" {key}")).unwrap_or_default()
}
