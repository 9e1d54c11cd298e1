//! libFuzzer's way into the target `inspect_manifest`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| terrace_fuzz::run("inspect_manifest", data));
