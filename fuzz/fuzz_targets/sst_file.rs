//! libFuzzer's way into the target `sst_file`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| terrace_fuzz::run("sst_file", data));
