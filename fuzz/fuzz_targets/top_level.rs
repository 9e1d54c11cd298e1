//! libFuzzer's way into the target `top_level`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| terrace_fuzz::run("top_level", data));
