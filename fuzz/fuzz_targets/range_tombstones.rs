//! libFuzzer's way into the target `range_tombstones`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| terrace_fuzz::run("range_tombstones", data));
