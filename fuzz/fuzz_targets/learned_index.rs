//! libFuzzer's way into the target `learned_index`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| terrace_fuzz::run("learned_index", data));
