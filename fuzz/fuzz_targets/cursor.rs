//! See `keygate_fuzz::cursor`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| keygate_fuzz::cursor(bytes));
