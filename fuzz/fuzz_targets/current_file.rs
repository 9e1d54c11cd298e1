//! libFuzzer's way into the target `current_file`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| terrace_fuzz::run("current_file", data));
