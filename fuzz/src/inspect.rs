//! Targets for what `terrace inspect` and `terrace verify` do with files in any state.

use crate::log::{SEGMENT, resealed};
use crate::manifest::{DIR, NUMBER};
use crate::store;
use crate::value::{with_right_batch, with_right_values};
use std::io;
use std::path::Path;
use std::sync::Arc;
use terrace_inspect as inspect;
use terrace_inspect::batch::PayloadPlace;
use terrace_log::dump::Detail;
use terrace_manifest::{current, names};
use terrace_sst::DumpDetail;
use terrace_vfs::{SimVfs, Vfs};

const BYTES: Detail = Detail::Bytes { payload_bytes: 64 };

/// Prints the bytes as a log segment.
pub fn log(data: &[u8]) -> bool {
    let path = Path::new("000007.log");
    let print = |data: &[u8]| {
        let vfs = one_file(path, data);
        let _ = inspect::log(&vfs, path, BYTES, &mut io::sink());
        inspect::log(&vfs, path, Detail::Records, &mut io::sink()).is_ok_and(|damaged| damaged == 0)
    };
    print(data) | print(&resealed(&with_right_values(data), SEGMENT.get()))
}

/// Prints the bytes as an SST.
pub fn sst(data: &[u8]) -> bool {
    let path = Path::new("000007.sst");
    let vfs = one_file(path, data);
    inspect::sst(&vfs, path, DumpDetail::Entries, &mut io::sink()).is_ok_and(|damaged| damaged == 0)
}

/// Prints the bytes as a manifest.
pub fn manifest(data: &[u8]) -> bool {
    let path = names::manifest_path(Path::new(DIR), NUMBER);
    let print = |data: &[u8]| {
        let vfs = one_file(&path, data);
        vfs.write_file(names::current_path(Path::new(DIR)), current::encode(NUMBER));
        let _ = inspect::manifest(&vfs, &path, BYTES, &mut io::sink());
        inspect::manifest(&vfs, Path::new(DIR), Detail::Records, &mut io::sink())
            .is_ok_and(|damaged| damaged == 0)
    };
    print(data) | print(&resealed(data, NUMBER))
}

/// Decodes and describes the bytes as a batch.
pub fn batch(data: &[u8]) -> bool {
    let place = PayloadPlace { segment: SEGMENT, offset: 53 };
    let data = with_right_batch(data, place);
    let (_, faults) = inspect::batch::describe(&data, place);
    let sound = inspect::batch::decode(&data, place)
        .is_some_and(|batch| batch.fault.is_none() && batch.unsound_values().count() == 0);
    assert_eq!(sound, faults == 0);
    sound
}

/// Prints and checks a store whose manifest the bytes are.
pub fn store(data: &[u8]) -> bool {
    let check = |data: &[u8]| {
        let dir = Path::new(DIR);
        let vfs = store::template_image();
        let Some(number) = in_force(&vfs, dir) else { return false };
        vfs.write_file(names::manifest_path(dir, number), data);
        let _ = inspect::lsm(&vfs, dir, &mut io::sink());
        let vfs: Arc<dyn Vfs> = Arc::new(vfs);
        inspect::check_store(&vfs, dir).is_ok_and(|report| report.is_sound())
    };
    let number = in_force(&store::template_image(), Path::new(DIR)).unwrap_or(NUMBER);
    check(data) | check(&resealed(data, number))
}

/// The number of the manifest in force.
pub fn in_force(vfs: &SimVfs, dir: &Path) -> Option<u64> {
    current::read(vfs, dir).ok()
}

fn one_file(path: &Path, data: &[u8]) -> SimVfs {
    let vfs = SimVfs::new(0);
    vfs.write_file(path, data);
    vfs
}
