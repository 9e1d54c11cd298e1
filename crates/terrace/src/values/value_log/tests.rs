//! Values in the cache, and handles that name them wrongly.

use super::*;
use terrace_base::SystemClock;
use terrace_log::value::ValueWriter;
use terrace_vfs::SimVfs;

/// What the cache has is checked like what is read: a handle that another key has, or with another length, is damage whether or
/// not the value is in memory.
#[test]
fn a_cached_value_is_served_to_its_key_alone() {
    let sim = SimVfs::new(1);
    let dir = Path::new("/db");
    sim.create_dir_all(dir).unwrap();
    let number = SegmentNumber::new(7);
    let mut writer = ValueWriter::create(&sim, &names::log_path(dir, number), number, 0).unwrap();
    let [one, other] = [b"one", b"two"].map(|key| writer.add(key, &[key[0]; 500], 0).unwrap());
    writer.finish().unwrap();
    let (cache, clock) = (Arc::new(BlockCache::new(1 << 20)), Arc::new(SystemClock::default()));
    let log = ValueLog::new(Arc::new(sim), dir, false, cache, 100, clock);
    log.begin(number, 0);
    for (key, handle) in [(b"one", one), (b"two", other)] {
        for _ in 0..2 {
            let value = log.get(key, handle, true).unwrap();
            assert_eq!(value.as_deref(), Some(&[key[0]; 500][..]));
        }
        assert!(log.has_in_memory(key, &handle) && log.get_in_memory(key, &handle).is_some());
    }
    assert_eq!(log.reads().0, 2, "the others are from the cache");
    let shorter = ValueHandle { len: one.len - 1, ..one };
    for (key, handle) in [(b"two", one), (b"one", other), (b"one", shorter)] {
        assert!(!log.has_in_memory(key, &handle) && log.get_in_memory(key, &handle).is_none());
        let read = log.get(key, handle, true);
        assert!(matches!(read, Err(Error::Corruption { .. })), "{read:?}");
        let len = log.value_len(key, handle);
        assert!(matches!(len, Err(Error::Corruption { .. })), "{len:?}");
    }
}
