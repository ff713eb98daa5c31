//! Strict runs (`make strict`): on an idle machine, times are asserted as well.

use std::time::Duration;

/// Returns whether `KEYGATE_STRICT` is set. Without it no test asserts how fast anything is, because a busy machine
/// makes every time longer.
pub fn is_strict() -> bool {
    std::env::var_os("KEYGATE_STRICT").is_some()
}

/// The time that something may take: `limit` in a strict run. On a machine that may be busy it is so much longer that
/// only what hangs, or does far more work than it should, takes as long.
pub fn lenient(limit: Duration) -> Duration {
    if is_strict() { limit } else { 40 * limit }
}
