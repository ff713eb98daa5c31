//! See `keygate_fuzz::proxy_header`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| keygate_fuzz::proxy_header(bytes));
