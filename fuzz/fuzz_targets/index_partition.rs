//! libFuzzer's way into the target `index_partition`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| terrace_fuzz::run("index_partition", data));
