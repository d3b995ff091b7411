#![no_main]

#[path = "../../tests/webtransport/noise.rs"]
mod noise;
#[path = "../../tests/webtransport/pair.rs"]
#[allow(dead_code)]
mod pair;

libfuzzer_sys::fuzz_target!(|input: &[u8]| noise::run(input));
