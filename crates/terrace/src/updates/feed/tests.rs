//! A feed whose segments go while it looks for them.

use super::*;
use crate::db::Db;
use crate::options::Options;
use crate::version::log_history::Retention;
use std::path::Path;
use std::sync::Mutex;
use terrace_manifest::names;
use terrace_vfs::{BeforeCalls, Call, SimVfs, Vfs};

type Act = Box<dyn FnOnce() + Send>;

/// Takes the segments that are kept for feeds, as a full disk does.
fn take_kept_segments(db: &Db, sim: &SimVfs) {
    let history = &db.inner().versions.log_history;
    let in_force = history.segments().last().unwrap().number;
    let taken = history.trim(Retention { limit_bytes: 0, in_force, regardless: true }, |_| false);
    assert!(!taken.is_empty());
    for number in taken {
        match sim.remove(&names::log_path(Path::new("/db"), number)) {
            // The thread that retires segments was just doing so, and found it in the history no more.
            Err(error) if error.is_not_found() => {}
            removed => removed.unwrap(),
        }
    }
}

/// A store whose writes have a segment each, and what happens before the next open of one.
fn store() -> (Db, SimVfs, Arc<Mutex<Option<Act>>>) {
    let (sim, act) = (SimVfs::new(1), Arc::default());
    let at_open: Arc<Mutex<Option<Act>>> = Arc::clone(&act);
    let vfs = BeforeCalls::new(sim.clone(), move |call, path| {
        if matches!(call, Call::Open) && path.extension().is_some_and(|ending| ending == "log") {
            let act = at_open.lock().unwrap().take();
            act.into_iter().for_each(|act| act());
        }
        Ok(())
    });
    let mut options = Options { memory_budget: 4 << 20, ..Options::default() };
    options.advanced.vfs = Arc::new(vfs);
    options.advanced.reserve_bytes = 0;
    options.advanced.log_retention_bytes = 1 << 30;
    let db = Db::open("/db", options).unwrap();
    for key in ["a", "b", "c"] {
        db.put(key, "value").unwrap();
        db.flush().unwrap();
    }
    (db, sim, act)
}

#[track_caller]
fn assert_gone<T: std::fmt::Debug>(result: Result<T>) {
    assert!(matches!(result, Err(Error::UpdatesGone { since: 2, oldest: 4 })), "{result:?}");
}

#[test]
fn a_feed_whose_segments_go_while_it_begins_anew_says_that_they_are_gone() {
    let (db, sim, act) = store();
    let mut feed = db.updates_since(1).unwrap();
    feed.next().unwrap().unwrap();
    assert_eq!(feed.next_seqno(), 2);
    // As after an error.
    feed.current = None;
    let (of_act, files) = (db.clone(), sim.clone());
    *act.lock().unwrap() = Some(Box::new(move || take_kept_segments(&of_act, &files)));
    assert_gone(feed.next().unwrap());
    assert!(act.lock().unwrap().is_none());
    db.close().unwrap();
}

#[test]
fn a_feed_whose_segments_go_while_it_is_made_says_that_they_are_gone() {
    let (db, sim, act) = store();
    let (of_act, files) = (db.clone(), sim.clone());
    *act.lock().unwrap() = Some(Box::new(move || take_kept_segments(&of_act, &files)));
    assert_gone(db.updates_since(2));
    assert!(act.lock().unwrap().is_none());
    db.close().unwrap();
}
