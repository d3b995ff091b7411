//! See `ringloop_h3::fuzz::connection`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| ringloop_h3::fuzz::connection(data));
