//! Jitter for pauses.

use std::time::Duration;

/// The pause, jittered to 50 % to 150 %: gateways that lost their server together do not reconnect together.
pub(super) fn jittered(pause: Duration) -> Duration {
    // Without randomness an unjittered pause will do.
    let random = getrandom::u32().unwrap_or(u32::MAX / 2);
    pause / 2 + pause.mul_f64(f64::from(random) / f64::from(u32::MAX))
}
