//! libFuzzer's way into the target `dump`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| terrace_fuzz::run("dump", data));
