//! libFuzzer's way into the target `version_edit`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| terrace_fuzz::run("version_edit", data));
