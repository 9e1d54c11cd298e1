//! libFuzzer's way into the target `server`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| terrace_fuzz::run("server", data));
