//! libFuzzer's way into the target `log_segment`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| terrace_fuzz::run("log_segment", data));
