//! libFuzzer's way into the target `resp_reply`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| terrace_fuzz::run("resp_reply", data));
