//! Threads that cannot be had, and threads that come and go.

use super::*;
use crate::error::Error;
use crate::jobs::scheduler::SchedulerState;
use crate::open::for_writing;
use crate::{Db, Options};
use terrace_vfs::SimVfs;

/// The n-th thread cannot be had, for every n: the open fails, no thread is left, and the store can
/// be opened at once and has everything.
#[test]
fn an_open_without_threads_fails_and_leaves_the_store_as_it_was() {
    let sim = SimVfs::new(1);
    let mut options = Options { memory_budget: 16 << 20, ..Options::default() };
    options.advanced.vfs = Arc::new(sim.clone());
    let db = Db::open("/db", options.clone()).unwrap();
    db.put(b"key", b"value").unwrap();
    db.close().unwrap();
    drop(db);
    let mut refused = 0;
    loop {
        let env = for_writing::open("/db".as_ref(), options.clone()).unwrap().background;
        let mut left = refused;
        let workers = Workers::start_by(&env, |name, work| {
            if left == 0 {
                return Err(io::ErrorKind::WouldBlock.into());
            }
            left -= 1;
            thread::Builder::new().name(name).spawn(work)
        });
        match workers {
            Err(error) => assert!(matches!(error, Error::Io(_)), "{error:?}"),
            Ok(workers) => {
                env.jobs.scheduler.stop();
                workers.join();
                break;
            }
        }
        assert_eq!(Arc::strong_count(&env), 1, "a thread is left");
        drop(env);
        let db = Db::open("/db", options.clone()).unwrap();
        assert_eq!(db.get(b"key").unwrap().as_deref(), Some(&b"value"[..]));
        db.close().unwrap();
        refused += 1;
    }
    assert!(refused >= 4, "only {refused} threads were asked for");
}

/// As many threads merge as were asked for last, whatever was asked for before.
#[test]
fn threads_that_merge_come_and_go_with_the_option() {
    let sim = SimVfs::new(1);
    let mut options = Options { memory_budget: 16 << 20, ..Options::default() };
    options.advanced.vfs = Arc::new(sim);
    let env = for_writing::open("/db".as_ref(), options.clone()).unwrap().background;
    let mut workers = Workers::start(&env).unwrap();
    let others = workers.threads.len() - 1;
    let mut started = 0;
    for jobs in [5, 2, 64, 1, 3] {
        options.background_jobs = jobs;
        env.base.dynamic.set_options(options.clone());
        let fitted = workers.fit_by(&env, |name, work| {
            started += 1;
            thread::Builder::new().name(name).spawn(work)
        });
        fitted.unwrap();
        let wanted = compaction_threads(jobs);
        let is_as_wanted =
            |jobs: &mut SchedulerState| Ok((jobs.compaction_threads == wanted).then_some(()));
        env.jobs.scheduler.wait_until(is_as_wanted).unwrap();
    }
    // 3 more, then 62 more, then 1 more.
    assert_eq!(started, 3 + 62 + 1);
    // Those that are over have said so, and end at once; the next change lets go of them.
    let wanted = others + compaction_threads(3);
    while workers.threads.iter().filter(|thread| !thread.is_finished()).count() > wanted {
        thread::yield_now();
    }
    workers.fit(&env).unwrap();
    assert_eq!(workers.threads.len(), wanted);
    let refused = workers.fit_by(&env, |_, _| Err(io::ErrorKind::WouldBlock.into()));
    assert!(refused.is_ok(), "none is wanted: {refused:?}");
    options.background_jobs = 9;
    env.base.dynamic.set_options(options);
    let refused = workers.fit_by(&env, |_, _| Err(io::ErrorKind::WouldBlock.into()));
    assert!(matches!(refused, Err(Error::Io(_))), "{refused:?}");
    assert_eq!(env.jobs.scheduler.lock().compaction_threads, 2);
    env.jobs.scheduler.stop();
    workers.join();
    assert_eq!(Arc::strong_count(&env), 1, "a thread is left");
}
