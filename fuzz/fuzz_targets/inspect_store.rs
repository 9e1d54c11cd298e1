//! libFuzzer's way into the target `inspect_store`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| terrace_fuzz::run("inspect_store", data));
