//! Fuzz targets: one function per parser of bytes from disk or from the network, in one list.
//!
//! A target takes arbitrary bytes, hands them to the parser, uses everything the parser gives out,
//! and says whether the parser took them for sound. It must not panic, in any thread, and must not
//! take memory that the bytes do not pay for. Where a checksum would end the parse before it
//! begins, the target makes the checksum right first: a checksum stops accidents, and a parser
//! must not rely on it. One target goes further: [`server`] executes what the bytes ask for.
//!
//! The list feeds two rigs: [`smoke`], which mutates what the crates' own writers make, runs on
//! any toolchain and is part of the tests; and libFuzzer through `fuzz_targets/` (see the
//! `README.md` beside). [`CANARY`] must fail: it shows that the rig can see a failure.

#![forbid(unsafe_code)]
#![allow(clippy::expect_used, reason = "a target panics where a parser is wrong")]

pub mod dump;
pub mod inspect;
pub mod log;
pub mod manifest;
pub mod mutate;
pub mod resp;
mod samples;
pub mod seeds;
pub mod server;
pub mod smoke;
pub mod sst;
pub mod sst_parts;
pub mod store;
pub mod value;

/// Says whether the bytes were taken for sound.
pub type Target = fn(&[u8]) -> bool;

/// Every target, by name.
pub const TARGETS: &[(&str, Target)] = &[
    ("log_segment", log::segment),
    ("log_recovery", log::recovery),
    ("value_segment", value::segment),
    ("value_read", value::read),
    ("sst_file", sst::file),
    ("sst_block", sst::block),
    ("index_partition", sst::index_partition),
    ("learned_index", sst::learned_index),
    ("filter_partition", sst::filter_partition),
    ("range_tombstones", sst::range_tombstones),
    ("top_level", sst::top_level),
    ("properties", sst::properties),
    ("footer", sst::footer),
    ("manifest_file", manifest::file),
    ("version_edit", manifest::edit),
    ("current_file", manifest::current),
    ("batch", store::batch),
    ("dump", dump::records),
    ("resp_request", resp::request),
    ("resp_reply", resp::reply),
    ("server", server::commands),
    ("inspect_log", inspect::log),
    ("inspect_sst", inspect::sst),
    ("inspect_manifest", inspect::manifest),
    ("inspect_batch", inspect::batch),
    ("inspect_store", inspect::store),
];

/// The target that must fail, and that [`smoke`] must find out.
pub const CANARY: (&str, Target) = ("canary", canary);

/// Panics on an input that no seed is and that one changed byte makes.
fn canary(data: &[u8]) -> bool {
    assert!(!data.starts_with(b"TER!"), "the canary sings");
    data.starts_with(b"TER")
}

/// The target of this name, the canary included.
pub fn target(name: &str) -> Option<Target> {
    let all = TARGETS.iter().chain([&CANARY]);
    all.into_iter().find(|(listed, _)| *listed == name).map(|(_, target)| *target)
}

/// What `fuzz_targets/` calls: runs one target.
///
/// # Panics
/// If there is no such target, and where the target does.
pub fn run(name: &str, data: &[u8]) {
    let target = target(name);
    assert!(target.is_some(), "there is no target {name}");
    if let Some(target) = target {
        target(data);
    }
}

#[cfg(test)]
mod tests;
