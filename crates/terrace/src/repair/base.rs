//! What a repair starts from: the manifest in force, or what is left of the newest one.

use super::Repair;
use crate::error::Result;
use terrace_base::rng::{Rng, SplitMix64};
use terrace_base::sync;
use terrace_base::{Error, SegmentNumber};
use terrace_log::LogPosition;
use terrace_manifest::evidence::{self, Claims};
use terrace_manifest::names::{self, FileName};
use terrace_manifest::{Manifest, ManifestState, current, salvage};
use terrace_sst::is_damage;
use terrace_vfs::is_no_file;

/// Numbers of manifests from here on are nobody's.
const MANIFEST_NUMBERS: u64 = u64::MAX - (1 << 20);

/// Whether edits of the manifest may be missing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Proof {
    /// The evidence says that none are.
    Whole,
    /// Nothing says that any are, and nothing says that none are.
    Unproven,
    /// Some are, or all.
    Short,
}

pub(super) struct Base {
    pub state: ManifestState,
    pub proof: Proof,
    pub claims: Claims,
    /// The largest number of a manifest that there was.
    pub newest: u64,
    /// Whether a plain open would read this.
    pub opens: bool,
}

impl Repair<'_> {
    /// The manifest in force; else what the newest that says anything says before its damage; else nothing.
    pub(super) fn base(&mut self) -> Result<Base> {
        let vfs = self.vfs.clone();
        let claims = match evidence::read(&*vfs, self.dir) {
            Ok(evidence) => evidence.claims,
            Err(error) if is_loss(&error) => Claims::default(),
            Err(error) => return Err(error.into()),
        };
        let mut numbers: Vec<u64> = Vec::new();
        for name in vfs.list(self.dir)? {
            if let FileName::Manifest(number) = names::parse(&name)
                && number < MANIFEST_NUMBERS
            {
                numbers.push(number);
            }
        }
        numbers.sort_unstable();
        let newest = numbers.last().copied().unwrap_or(0).max(claims.manifest.segment.get());
        let why = match Manifest::read(&*vfs, self.dir) {
            Ok(state) => {
                let proof = match claims.manifest.segment.get() {
                    0 => Proof::Unproven,
                    _ => Proof::Whole,
                };
                return Ok(Base { state, proof, claims, newest, opens: true });
            }
            Err(error) if is_loss(&error) => error,
            Err(error) => return Err(error.into()),
        };
        // The one that CURRENT names first, unless it is known that a newer one was in force.
        let named =
            current::read(&*vfs, self.dir).ok().filter(|n| *n >= claims.manifest.segment.get());
        numbers.sort_by_key(|number| (named == Some(*number), *number));
        for number in numbers.into_iter().rev() {
            match salvage::salvage(&*vfs, self.dir, number) {
                Ok(Some(found)) => return Ok(self.salvaged(number, found, claims, newest)),
                Err(error) if !is_loss(&error) => return Err(error.into()),
                _ => self.lost(format!("{}: it says nothing", names::manifest_name(number))),
            }
        }
        self.lost(format!(
            "the manifest ({why}): names of families without SSTs, and which SSTs were merged away, are unknown"
        ));
        let store_id = match claims.store_id {
            0 => {
                let now = self.options.advanced.clock.wall_ms();
                SplitMix64::new(now ^ u64::from(sync::process_id()) << 40).next_u64()
            }
            known => known,
        };
        let state = ManifestState::fresh(store_id);
        Ok(Base { state, proof: Proof::Short, claims, newest, opens: false })
    }

    fn salvaged(
        &mut self,
        number: u64,
        found: salvage::Salvaged,
        mut claims: Claims,
        newest: u64,
    ) -> Base {
        let salvage::Salvaged { state, end_bytes, damage } = found;
        let name = names::manifest_name(number);
        if claims.store_id != 0 && claims.store_id != state.store_id {
            self.note(format!(
                "{name}: the evidence files are of another store, and count for nothing"
            ));
            claims = Claims::default();
        }
        let end = LogPosition { segment: SegmentNumber::new(number), offset: end_bytes };
        let mut proof = match end >= claims.manifest {
            true if claims.manifest.segment == SegmentNumber::ZERO => Proof::Unproven,
            true => Proof::Whole,
            false => Proof::Short,
        };
        if let Some(why) = damage {
            proof = Proof::Short;
            self.lost(format!("{name}: its edits from offset {end_bytes} on ({why})"));
        } else if proof == Proof::Short {
            let LogPosition { segment: proven, offset: bytes } = claims.manifest;
            self.lost(format!(
                "{name}: edits behind its end at offset {end_bytes}; manifest {proven} was durable up to \
                 offset {bytes}"
            ));
        } else {
            self.note(format!("{name}: whole as far as anything tells, and put in force again"));
        }
        Base { state, proof, claims, newest, opens: false }
    }
}

/// Whether what is wrong with a file is damage, or that it is not there, or no file.
pub(super) fn is_loss(error: &Error) -> bool {
    is_damage(error) || error.is_not_found() || is_no_file(error)
}
