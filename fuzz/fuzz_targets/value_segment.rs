//! libFuzzer's way into the target `value_segment`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| terrace_fuzz::run("value_segment", data));
