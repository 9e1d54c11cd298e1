//! A process that is short of descriptors.

use crate::{Db, Options};
use std::sync::Arc;
use terrace_manifest::FileMeta;
use terrace_vfs::{Fault, FaultKind, OpClass, SimVfs};

#[test]
fn without_a_descriptor_a_reader_takes_that_of_another() {
    let sim = SimVfs::new(1);
    let mut options = Options { memory_budget: 16 << 20, ..Options::default() };
    options.advanced.vfs = Arc::new(sim.clone());
    options.advanced.reserve_bytes = 0;
    options.advanced.compact_when_idle = false;
    let db = Db::open("/db", options.clone()).unwrap();
    for key in [b"a", b"b", b"c"] {
        db.put(key, b"value").unwrap();
        db.flush().unwrap();
    }
    db.close().unwrap();
    let db = Db::open("/db", options).unwrap();
    let read = &db.inner().read;
    let (cache, family) = (&read.table_cache, read.family(0).unwrap());
    let version = family.hold_state().version.clone();
    let files: Vec<&Arc<FileMeta>> = version.all_files().map(|(_, file)| file).collect();
    let [first, second, third] = files[..] else { panic!("{} files", files.len()) };
    let lack = |forever| {
        let (at_op, kind, filter) = (sim.op_count(), FaultKind::NoDescriptors, Some(OpClass::Open));
        sim.set_fault(Some(Fault { at_op, kind, forever, filter }));
    };
    cache.reader(first).unwrap();
    cache.reader(second).unwrap();
    let (open, before) = (cache.open_count(), sim.executed_faults());
    lack(false);
    cache.reader(third).unwrap();
    assert_eq!((sim.executed_faults() - before, cache.open_count()), (1, open));

    // If there is none all the same, or no reader to close, that is an error.
    for file in files {
        cache.forget(file.number);
    }
    lack(true);
    assert!(cache.reader(first).err().unwrap().is_transient());
    sim.set_fault(None);
    cache.reader(first).unwrap();
}
