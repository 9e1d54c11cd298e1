//! libFuzzer's way into the target `value_read`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| terrace_fuzz::run("value_read", data));
