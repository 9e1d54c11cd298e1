//! libFuzzer's way into the target `resp_request`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| terrace_fuzz::run("resp_request", data));
