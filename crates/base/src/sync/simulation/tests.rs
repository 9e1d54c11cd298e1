//! The scheduler finds races, circles and lost wake-ups, and one seed is one run.

use super::lock::{Condvar, Mutex};
use super::*;
use crate::sync::Instant;
use std::sync::atomic::{AtomicU64, Ordering};

fn settings(seed: u64) -> Settings {
    Settings {
        seed,
        switch_one_in: 2,
        timeout_one_in: 50,
        pause_one_in: 10,
        tick: Duration::from_micros(1),
        most_steps: 100_000,
        longest_call: Duration::from_secs(60),
        keep_trace: true,
    }
}

fn spawn(work: impl FnOnce() + Send + 'static) -> thread::JoinHandle<()> {
    thread::Builder::new().spawn(work).unwrap()
}

/// Two threads that add to a counter, with a place to interleave between load and store.
fn race(seed: u64, locked: bool) -> (Outcome, u64) {
    let sum = Arc::new(AtomicU64::new(0));
    let seen = sum.clone();
    let outcome = run(settings(seed), move || {
        let turn = Arc::new(Mutex::new(()));
        let threads: Vec<_> = (0..2)
            .map(|_| {
                let (sum, turn) = (sum.clone(), turn.clone());
                spawn(move || {
                    let _turn = locked.then(|| turn.lock());
                    let old = sum.load(Ordering::Relaxed);
                    interleave();
                    sum.store(old + 1, Ordering::Relaxed);
                })
            })
            .collect();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
    });
    (outcome, seen.load(Ordering::Relaxed))
}

#[test]
fn one_seed_is_one_run_and_another_seed_another() {
    let (first, second) = (race(7, true).0, race(7, true).0);
    assert_eq!((first.hash, &first.trace), (second.hash, &second.trace));
    assert!(first.failure.is_none() && first.steps > 5);
    let hashes: std::collections::BTreeSet<u64> =
        (0..50).map(|seed| race(seed, true).0.hash).collect();
    assert!(hashes.len() > 40);
}

#[test]
fn a_race_is_found_and_a_lock_ends_it() {
    let lost = (0..100).filter(|seed| race(*seed, false).1 == 1).count();
    assert!((5..95).contains(&lost), "{lost}");
    assert!((0..100).all(|seed| race(seed, true).1 == 2));
}

#[test]
fn all_that_another_thread_does_falls_into_a_gap_now_and_then() {
    let whole_gaps = (0..100).filter(|seed| {
        let (done, gap) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
        let seen = gap.clone();
        run(Settings { timeout_one_in: 1_000_000, ..settings(*seed) }, move || {
            let working = done.clone();
            let other = spawn(move || {
                for _ in 0..1000 {
                    switch("work");
                    working.fetch_add(1, Ordering::Relaxed);
                }
            });
            let before = done.load(Ordering::Relaxed);
            interleave();
            gap.store(done.load(Ordering::Relaxed) - before, Ordering::Relaxed);
            other.join().unwrap();
        });
        seen.load(Ordering::Relaxed) == 1000
    });
    assert!(whole_gaps.count() > 0);
}

#[test]
fn a_call_that_could_have_gone_on_has_not_taken_the_time_of_an_early_deadline() {
    for seed in 0..50 {
        let outcome = run(Settings { timeout_one_in: 5, ..settings(seed) }, || {
            let signal = Arc::new((Mutex::new(()), Condvar::new()));
            let heard = signal.clone();
            spawn(move || {
                let mut guard = heard.0.lock();
                for _ in 0..3 {
                    heard.1.wait_for(&mut guard, Duration::from_secs(100));
                }
            });
            begin_call("a call that is busy".into());
            (0..50).for_each(|_| thread::yield_now());
            end_call();
        });
        assert_eq!(outcome.failure, None, "seed {seed}");
    }
}

#[test]
fn a_circle_of_locks_fails_and_says_who_waits_for_whom() {
    let found = (0..50).find_map(|seed| {
        let outcome = run(settings(seed), || {
            let (a, b) = (Arc::new(Mutex::new(())), Arc::new(Mutex::new(())));
            let (c, d) = (a.clone(), b.clone());
            let other = spawn(move || {
                let _b = d.lock();
                let _a = c.lock();
            });
            let _a = a.lock();
            drop(b.lock());
            drop(_a);
            other.join().unwrap();
        });
        outcome.failure
    });
    let why = found.unwrap();
    assert!(why.contains("wait for one another") && why.contains("a lock that thread"), "{why}");
}

#[test]
fn a_wake_up_that_nobody_sends_fails() {
    let outcome = run(settings(1), || {
        let (lock, signal) = (Mutex::new(()), Condvar::new());
        signal.wait(&mut lock.lock());
    });
    assert!(outcome.failure.unwrap().contains("a signal, for ever"));
}

#[test]
fn a_panic_fails_with_what_it_says() {
    let outcome = run(settings(1), || drop(spawn(|| panic!("no such luck")).join()));
    assert!(outcome.failure.unwrap().contains("no such luck"));
}

#[test]
fn time_is_virtual_and_a_call_is_bounded() {
    let outcome = run(settings(1), || {
        let start = Instant::now();
        thread::sleep(Duration::from_secs(1000));
        assert!(start.elapsed() >= Duration::from_secs(1000));
        let (lock, signal) = (Mutex::new(()), Condvar::new());
        assert!(signal.wait_for(&mut lock.lock(), Duration::from_secs(5)).timed_out());
    });
    assert!(outcome.failure.is_none() && outcome.elapsed >= Duration::from_secs(1005));
    let late = run(settings(1), || {
        begin_call("put".into());
        (0..100).for_each(|_| thread::sleep(Duration::from_secs(1)));
    });
    assert!(late.failure.unwrap().contains("`put` has not returned"));
}

#[test]
fn scoped_threads_borrow_and_end_with_their_scope() {
    for seed in 0..20 {
        let outcome = run(settings(seed), || {
            let sum = AtomicU64::new(0);
            thread::scope(|scope| {
                let first = scope.spawn(|| sum.fetch_add(1, Ordering::Relaxed));
                scope.spawn(|| sum.fetch_add(1, Ordering::Relaxed));
                let name = || std::thread::current().name().map(str::to_owned);
                let named = thread::spawn_scoped(scope, "named", name).unwrap();
                first.join().unwrap();
                assert_eq!(named.join().unwrap().as_deref(), Some("named"));
            });
            assert_eq!(sum.load(Ordering::Relaxed), 2);
        });
        assert_eq!(outcome.failure, None);
    }
}

#[test]
fn locks_and_signals_work_outside_simulations() {
    let shared = Arc::new((Mutex::new(false), Condvar::new()));
    let other = shared.clone();
    let thread = spawn(move || {
        *other.0.lock() = true;
        other.1.notify_all();
    });
    let mut done = shared.0.lock();
    while !*done {
        shared.1.wait(&mut done);
    }
    drop(done);
    thread.join().unwrap();
}
