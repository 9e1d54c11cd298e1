//! libFuzzer's way into the target `log_recovery`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| terrace_fuzz::run("log_recovery", data));
