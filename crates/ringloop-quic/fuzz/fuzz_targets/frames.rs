//! See `ringloop_quic::fuzz::frames`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| ringloop_quic::fuzz::frames(data));
