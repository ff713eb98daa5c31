//! See `keygate_fuzz::cookie`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| keygate_fuzz::cookie(bytes));
