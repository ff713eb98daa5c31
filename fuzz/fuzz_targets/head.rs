//! See `keygate_fuzz::head`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| keygate_fuzz::head(bytes));
