//! See `keygate_fuzz::bearer`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| keygate_fuzz::bearer(bytes));
