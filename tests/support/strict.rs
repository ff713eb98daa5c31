//! Strict runs (`make strict`): on an idle machine, times are asserted as well.

/// Whether `KEYGATE_STRICT` is set. Without it no test asserts how fast anything is, because a busy machine makes every
/// time longer.
pub fn is_strict() -> bool {
    std::env::var_os("KEYGATE_STRICT").is_some()
}
