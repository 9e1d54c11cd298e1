//! Room on the disk that a merge leaves to others. A merge that is begun although it may not fit looks at what is free as
//! it goes, and ends with an error before it has filled the disk: its outputs go, its inputs stay, and writes go on.
//! Made by `compact`; `job` looks.

use crate::env::reserve;
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use terrace_base::{Error, Result};
use terrace_vfs::Vfs;

/// A merge looks when it has written one part in this many of what is to stay free ...
const LOOK_PARTS: u64 = 16;
/// ... within these bounds.
const MIN_LOOK_BYTES: u64 = 4 << 10;
const MAX_LOOK_BYTES: u64 = 1 << 20;

/// What one merge is to leave free.
pub(crate) struct KeptRoom<'a> {
    vfs: &'a dyn Vfs,
    dir: &'a Path,
    bytes: u64,
    is_met: AtomicBool,
}

impl<'a> KeptRoom<'a> {
    /// `bytes` are to stay free in `dir`, with what is set aside there.
    pub fn new(vfs: &'a dyn Vfs, dir: &'a Path, bytes: u64) -> Self {
        Self { vfs, dir, bytes, is_met: AtomicBool::new(false) }
    }

    /// Bytes that a piece of the merge writes between two looks.
    pub fn look_bytes(&self) -> u64 {
        (self.bytes / LOOK_PARTS).clamp(MIN_LOOK_BYTES, MAX_LOOK_BYTES)
    }

    /// Looks at what is free.
    ///
    /// # Errors
    /// No room: less than what is to stay free, or it was at an earlier look.
    pub fn look(&self) -> Result<()> {
        // Unknown room is no reason to end.
        if !self.is_met() && reserve::room_bytes(self.vfs, self.dir) >= self.bytes {
            return Ok(());
        }
        self.is_met.store(true, Ordering::Relaxed);
        let why = format!(
            "there is no room: the merge would leave less than {} bytes, which other writes need",
            self.bytes
        );
        let error = io::Error::new(io::ErrorKind::StorageFull, why);
        Err(Error::io("merge files in", self.dir, error))
    }

    /// Whether a look has found too little.
    pub fn is_met(&self) -> bool {
        self.is_met.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use terrace_vfs::{CreateOptions, SimVfs};

    #[test]
    fn what_is_set_aside_counts_and_unknown_room_is_enough() {
        let (sim, dir) = (SimVfs::new(1), Path::new("/db"));
        sim.create_dir_all(dir).unwrap();
        sim.set_capacity_bytes(Some(20_000));
        reserve::take(&sim, dir, 8000).unwrap();
        let room = KeptRoom::new(&sim, dir, 16_000);
        room.look().unwrap();
        let mut file = sim.create(&dir.join("output"), &CreateOptions::default()).unwrap();
        file.append(&[0; 4000]).unwrap();
        room.look().unwrap();
        file.append(&[0; 1]).unwrap();
        let hidden = KeptRoom::new(&sim, dir, 16_000);
        assert!(room.look().unwrap_err().is_no_space() && room.is_met());
        sim.set_capacity_bytes(None);
        assert!(room.look().is_err(), "every piece of the merge ends");
        sim.set_capacity_bytes(Some(1000));
        sim.hide_free_space();
        hidden.look().unwrap();
        assert!(!hidden.is_met());
    }
}
