//! See `keygate_fuzz::return_path`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| keygate_fuzz::return_path(bytes));
