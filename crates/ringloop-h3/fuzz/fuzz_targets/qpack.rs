//! See `ringloop_h3::fuzz::qpack`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| ringloop_h3::fuzz::qpack(data));
