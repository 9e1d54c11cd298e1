//! libFuzzer's way into the target `filter_partition`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| terrace_fuzz::run("filter_partition", data));
