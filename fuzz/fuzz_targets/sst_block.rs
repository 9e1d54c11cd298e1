//! libFuzzer's way into the target `sst_block`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| terrace_fuzz::run("sst_block", data));
