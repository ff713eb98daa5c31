//! See `keygate_fuzz::sanitizer`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| keygate_fuzz::sanitizer(bytes));
