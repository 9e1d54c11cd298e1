//! What an open on a full disk removes.

use super::*;
use crate::{Db, SyncMode};
use terrace_vfs::SimVfs;

const DIR: &str = "/store";

fn options(sim: &SimVfs) -> Options {
    let mut options =
        Options { memory_budget: 16 << 20, sync: SyncMode::Batch, ..Options::default() };
    options.advanced.vfs = Arc::new(sim.clone());
    options.advanced.reserve_bytes = 0;
    options
}

/// Such an open is refused; the segment must be there when somebody gives it its name back.
#[test]
fn a_segment_of_the_log_that_has_the_name_of_a_temporary_file_stays() {
    const KEYS: [&str; 3] = ["first", "second", "third"];
    let (sim, dir) = (SimVfs::new(1), Path::new(DIR));
    let db = Db::open(DIR, options(&sim)).unwrap();
    let mut segments = Vec::new();
    for (begun, key) in KEYS.iter().enumerate() {
        let env = &db.inner().commit;
        let lead = env.queue().unwrap().lead();
        if begun > 0 {
            log_segments::next_segment(env, &mut lead.log()).unwrap();
        }
        segments.push(lead.log().writer.segment());
        drop(lead);
        db.put(key, b"value").unwrap();
    }
    // One that another one continues, and the newest, which only the evidence knows.
    for number in &segments[1..] {
        let image = sim.kill_image();
        let (named, temp) = (names::log_path(dir, *number), names::temp_path(dir, number.file()));
        let content = image.read_file(&named).unwrap();
        image.rename(&named, &temp).unwrap();
        let used_bytes: u64 = image.files().into_iter().map(|(_, bytes)| bytes).sum();
        image.set_capacity_bytes(Some(used_bytes));
        let refused = Db::open(DIR, options(&image)).map(drop);
        assert!(matches!(refused, Err(Error::Corruption(_))), "{refused:?}");
        assert_eq!(image.read_file(&temp), Some(content));
        image.set_capacity_bytes(None);
        image.rename(&temp, &named).unwrap();
        let db = Db::open(DIR, options(&image)).unwrap();
        assert!(KEYS.iter().all(|key| db.get(key).unwrap().is_some()));
    }
}
