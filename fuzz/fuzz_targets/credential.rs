//! See `keygate_fuzz::credential`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| keygate_fuzz::credential(bytes));
