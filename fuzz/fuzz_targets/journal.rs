//! See `keygate_fuzz::journal`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| keygate_fuzz::journal(bytes));
