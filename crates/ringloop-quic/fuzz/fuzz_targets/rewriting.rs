//! See `ringloop_quic::fuzz::rewriting`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| ringloop_quic::fuzz::rewriting(data));
