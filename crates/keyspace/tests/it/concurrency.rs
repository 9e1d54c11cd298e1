//! Several threads: locks, moments, sweeps beside writers.

use super::harness::{below, store};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use terrace_base::rng::SplitMix64;
use terrace_keyspace::{CommandBatch, Error, ExpireIf, Keyspace, Mode, PutOptions, Wait};

const ACCOUNTS: u64 = 8;
const THREADS: u64 = 4;
const TIMES: u64 = 500;
/// How long a key lives that has an expiry.
const LIFE_MS: u64 = 100_000;

/// Ends threads that go on until a flag is set, also if their test fails.
struct StopOnDrop<'a>(&'a AtomicBool);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

fn account(number: u64) -> Vec<u8> {
    format!("account {number}").into_bytes()
}

/// A command with locks, in memory if that is possible.
fn execute<T>(
    space: &Arc<Keyspace>,
    in_memory: bool,
    keys: &[&[u8]],
    run: impl Fn(&mut CommandBatch) -> terrace_keyspace::Result<T>,
) -> T {
    if in_memory {
        let mut turn = space.command_batch(Mode::Memory);
        let done = turn.lock(0, keys.iter().copied()).and_then(|()| turn.attempt(&run));
        match done {
            Ok(done) => {
                turn.commit().unwrap();
                return done;
            }
            Err(Error::Elsewhere(_)) => turn.abandon(),
            Err(error) => panic!("{error}"),
        }
    }
    let mut turn = space.command_batch(Mode::Device);
    turn.lock(0, keys.iter().copied()).unwrap();
    let done = turn.attempt(&run).unwrap();
    turn.commit().unwrap();
    done
}

#[test]
fn transfers_between_threads_lose_nothing_and_no_reader_sees_half_of_one() {
    let (space, _vfs, _clock) = store();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let writers: Vec<_> = (0..THREADS)
            .map(|thread| {
                let space = &space;
                scope.spawn(move || {
                    let mut rng = SplitMix64::new(thread);
                    for _ in 0..TIMES {
                        let (from, to) = (below(&mut rng, ACCOUNTS), below(&mut rng, ACCOUNTS));
                        let (from, to) = (account(from), account(to));
                        let sum = below(&mut rng, 100) as i64;
                        let in_memory = below(&mut rng, 2) == 0;
                        execute(space, in_memory, &[&from, &to], |turn| {
                            turn.add(0, &from, -sum)?;
                            turn.add(0, &to, sum)
                        });
                    }
                })
            })
            .collect();
        scope.spawn(|| {
            let keys: Vec<Vec<u8>> = (0..ACCOUNTS).map(account).collect();
            let keys: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
            while !stop.load(Ordering::Relaxed) {
                for mode in [Mode::Memory, Mode::Device] {
                    let values = match space.command_batch(mode).get_many(0, &keys) {
                        Err(Error::Elsewhere(_)) => continue,
                        values => values.unwrap(),
                    };
                    let sum: i64 = values
                        .iter()
                        .flatten()
                        .map(|value| std::str::from_utf8(value).unwrap().parse::<i64>().unwrap())
                        .sum();
                    assert_eq!(sum, 0);
                }
            }
        });
        let _stop = StopOnDrop(&stop);
        for writer in writers {
            writer.join().unwrap();
        }
    });
}

#[test]
fn a_key_that_changes_its_type_is_never_missing() {
    let (space, _vfs, clock) = store();
    let (stop, put_ms) = (AtomicBool::new(false), AtomicU64::new(clock.now_ms()));
    let put = |turn: &mut CommandBatch| turn.put(0, b"k", b"text", &PutOptions::default());
    execute(&space, true, &[b"k"], put);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                assert!(space.command_batch(Mode::Device).key_type(0, b"k").unwrap().is_some());
                assert_eq!(space.command_batch(Mode::Device).count_keys(0).unwrap(), 1);
                match space.command_batch(Mode::Device).get(0, b"k") {
                    Ok(Some(value)) => assert_eq!(&*value, b"text"),
                    Err(Error::WrongType) => {}
                    other => panic!("{other:?}"),
                }
            }
        });
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                space.expire_due().unwrap();
                // Of a life no more than half passes, however long the writer is held up.
                if clock.now_ms() < put_ms.load(Ordering::SeqCst) + LIFE_MS / 2 {
                    clock.advance(1);
                }
            }
        });
        let _stop = StopOnDrop(&stop);
        for number in 0..TIMES {
            let fields: Vec<Vec<u8>> =
                (0..1 + number % 50).map(|n| n.to_string().into_bytes()).collect();
            execute(&space, number % 2 == 0, &[b"k"], |turn| {
                turn.delete(0, [&b"k"[..]].into_iter())?;
                turn.hash_set(0, b"k", fields.iter().map(|field| (&field[..], &b"v"[..])))
            });
            put_ms.store(clock.now_ms(), Ordering::SeqCst);
            execute(&space, number % 3 == 0, &[b"k"], |turn| {
                let soon = turn.now_ms() + LIFE_MS;
                turn.expire(0, b"k", soon, ExpireIf::default())
            });
            execute(&space, number % 2 == 0, &[b"k"], put);
        }
    });
}

#[test]
fn a_lock_that_another_turn_has_is_refused_in_memory_and_waited_for_elsewhere() {
    let (space, _vfs, _clock) = store();
    let mut first = space.command_batch(Mode::Memory);
    first.lock(0, [&b"k"[..]].into_iter()).unwrap();
    first.put(0, b"k", b"1", &PutOptions::default()).unwrap();
    let mut second = space.command_batch(Mode::Memory);
    let refused = second.lock(0, [&b"other"[..], b"k"].into_iter());
    assert!(matches!(refused, Err(Error::Elsewhere(_))));
    // What it had taken before is free again.
    let mut third = space.command_batch(Mode::Memory);
    third.lock(0, [&b"other"[..]].into_iter()).unwrap();
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| {
            let mut turn = space.command_batch(Mode::Device);
            turn.lock(0, [&b"k"[..]].into_iter()).unwrap();
            turn.add(0, b"k", 1).unwrap()
        });
        std::thread::sleep(std::time::Duration::from_millis(20));
        assert!(!waiting.is_finished());
        first.commit().unwrap();
        assert_eq!(waiting.join().unwrap(), 2);
    });
}

#[test]
fn a_lock_is_refused_also_to_a_turn_that_may_wait_but_not_for_keys() {
    let (space, _vfs, _clock) = store();
    let calls = Arc::new(AtomicU64::new(0));
    let counted = calls.clone();
    space.on_release(move || _ = counted.fetch_add(1, Ordering::Relaxed));
    let mut first = space.command_batch(Mode::Memory);
    first.lock(0, [&b"k"[..]].into_iter()).unwrap();
    let mut second = space.command_batch(Mode::Device);
    second.wait_for_keys(false);
    let refused = second.lock(0, [&b"other"[..], b"k"].into_iter());
    assert!(matches!(refused, Err(Error::Elsewhere(Wait::Key))));
    assert!(second.take_held_up() && !second.take_held_up());
    assert_eq!((second.lock_count(), calls.load(Ordering::Relaxed)), (0, 0));
    first.abandon();
    assert_eq!(calls.load(Ordering::Relaxed), 1, "it can be tried again");
    second.lock(0, [&b"other"[..], b"k"].into_iter()).unwrap();
    assert!(!second.take_held_up());
}
