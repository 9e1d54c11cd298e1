//! libFuzzer's way into the target `properties`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| terrace_fuzz::run("properties", data));
