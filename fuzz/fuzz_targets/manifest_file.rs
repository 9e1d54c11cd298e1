//! libFuzzer's way into the target `manifest_file`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| terrace_fuzz::run("manifest_file", data));
