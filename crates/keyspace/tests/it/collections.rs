//! Random commands on hashes, sets, sorted sets and lists beside a model: members that are empty,
//! long, or have equal hashes, scores of all kinds, attempts that fail, turns that are abandoned or
//! have to wait, keys that expire and come again as something else.

use super::collections_commands::{Command, equal_hashes};
use super::collections_model::{Data, Model};
use super::harness::{PLACEMENT, below, one_in, small_options, stopped_clock, store};
use std::collections::BTreeSet;
use std::sync::Arc;
use terrace::vfs::SimVfs;
use terrace_base::ManualClock;
use terrace_base::rng::SplitMix64;
use terrace_keyspace::{
    AddRule, CommandBatch, Error, Keyspace, MAX_MEMBER_BYTES, Mode, Order, Range, Result,
};

type Bytes = Vec<u8>;

struct Run {
    rng: SplitMix64,
    clock: ManualClock,
    space: Arc<Keyspace>,
    model: Model,
    executed: u64,
    elsewhere: u64,
}

const KEYS: u64 = 6;

fn key_of(at: u64) -> Bytes {
    format!("key {at}").into_bytes()
}

impl Run {
    /// Executes one command in both; false if it has to be executed elsewhere.
    fn execute(
        &mut self,
        turn: &mut CommandBatch,
        model: &mut Model,
        key: &[u8],
        command: &Command,
    ) -> bool {
        turn.next_command();
        let reply = match command.run(turn, key) {
            Err(Error::Elsewhere(_)) if turn.mode() == Mode::Memory => return false,
            Err(error) => error.to_string(),
            Ok(reply) => reply,
        };
        let wanted = model.answer(key, command, &reply, self.clock.now_ms());
        assert_eq!(reply, wanted, "{command:?}");
        self.executed += 1;
        true
    }

    fn turn(&mut self) {
        let commands: Vec<(Bytes, Command)> = (0..1 + below(&mut self.rng, 8))
            .map(|_| (key_of(below(&mut self.rng, KEYS)), Command::draw(&mut self.rng)))
            .collect();
        let mode = if one_in(&mut self.rng, 2) { Mode::Memory } else { Mode::Device };
        self.turn_of(&commands, mode);
    }

    fn turn_of(&mut self, commands: &[(Bytes, Command)], mode: Mode) {
        let mut turn = self.space.command_batch(mode);
        turn.lock(0, commands.iter().map(|(key, _)| &key[..])).unwrap();
        let mut model = self.model.clone();
        let mut rest = commands;
        while !rest.is_empty() {
            let (now, later) = rest.split_at(1 + below(&mut self.rng, rest.len() as u64) as usize);
            let fails = one_in(&mut self.rng, 6);
            let before = model.clone();
            let mut waits = false;
            let _ = turn.attempt(|turn| {
                for (key, command) in now {
                    if !self.execute(turn, &mut model, key, command) {
                        waits = true;
                    }
                    if waits {
                        return Err(());
                    }
                }
                if fails { Err(()) } else { Ok(()) }
            });
            if fails || waits {
                model = before;
            }
            if waits {
                self.elsewhere += 1;
                turn.commit().unwrap();
                self.model = model;
                return self.turn_of(rest, Mode::Device);
            }
            rest = later;
        }
        match below(&mut self.rng, 8) {
            0 => turn.abandon(),
            1 => drop(turn),
            _ => {
                turn.commit().unwrap();
                self.model = model;
            }
        }
    }

    fn compare(&mut self) {
        let now_ms = self.clock.now_ms();
        for at in 0..KEYS {
            let key = key_of(at);
            let mut turn = self.space.command_batch(Mode::Device);
            assert_eq!(stored(&mut turn, &key).unwrap(), self.model.data(&key, now_ms), "{at}");
        }
    }
}

/// Everything under a key, read in two ways.
fn stored(turn: &mut CommandBatch, key: &[u8]) -> Result<Option<Data>> {
    let kind = turn.key_type(0, key)?.map_or("none", |kind| kind.name());
    let mut walked = BTreeSet::new();
    let mut paged = BTreeSet::new();
    let mut cursor = 0;
    let data = match kind {
        "hash" => {
            let hash = turn.hash(0, key)?.unwrap();
            turn.hash_each(0, &hash, |field, value| {
                Ok(walked.insert((field.to_vec(), value.to_vec())))
            })?;
            loop {
                let page = turn.hash_page(0, &hash, cursor, 3, usize::MAX)?;
                paged.extend(page.items);
                cursor = page.cursor;
                if cursor == 0 {
                    break;
                }
            }
            assert_eq!((&walked, walked.len() as u64), (&paged, hash.count));
            Data::Hash(walked.into_iter().collect())
        }
        "set" => {
            let set = turn.set(0, key)?.unwrap();
            turn.set_each(0, &set, |member| Ok(walked.insert((member.to_vec(), Vec::new()))))?;
            loop {
                let page = turn.set_page(0, &set, cursor, 3, usize::MAX)?;
                paged.extend(page.items.into_iter().map(|member| (member, Vec::new())));
                cursor = page.cursor;
                if cursor == 0 {
                    break;
                }
            }
            assert_eq!((&walked, walked.len() as u64), (&paged, set.count));
            Data::Set(walked.into_iter().map(|(member, _)| member).collect())
        }
        "zset" => {
            let set = turn.sorted_set(0, key)?.unwrap();
            let mut ordered = Vec::new();
            turn.sorted_set_each(
                0,
                &set,
                &Range::Ranks(0..=u64::MAX),
                Order::Up,
                |member, score| {
                    ordered.push((member.to_vec(), score));
                    Ok(true)
                },
            )?;
            let mut paged = Vec::new();
            loop {
                let page = turn.sorted_set_page(0, &set, cursor, 3, usize::MAX)?;
                paged.extend(page.items);
                cursor = page.cursor;
                if cursor == 0 {
                    break;
                }
            }
            paged.sort_by(|a, b| a.1.total_cmp(&b.1).then_with(|| a.0.cmp(&b.0)));
            assert_eq!((&ordered, ordered.len() as u64), (&paged, set.count));
            Data::Scores(ordered.into_iter().collect())
        }
        "list" => {
            let list = turn.list(0, key)?.unwrap();
            let mut values = Vec::new();
            turn.list_each(0, &list, 0, u64::MAX, |value| {
                values.push(value.to_vec());
                Ok(true)
            })?;
            assert_eq!(values.len() as u64, list.count);
            Data::List(values)
        }
        _ => return Ok(None),
    };
    Ok(Some(data))
}

#[test]
fn collections_answer_as_a_model_does() {
    let seeds = match std::env::var("SEED").ok().and_then(|seed| seed.parse().ok()) {
        Some(seed) => seed..seed + 1,
        None => 0..6,
    };
    let mut elsewhere = 0;
    for seed in seeds {
        let (vfs, clock) = (SimVfs::new(seed), stopped_clock());
        let space = Keyspace::open_without_active_expire(
            "/db",
            small_options(&vfs, &clock),
            Some(PLACEMENT),
        )
        .unwrap();
        let (rng, model) = (SplitMix64::new(seed), Model::default());
        let mut run = Run { rng, clock, space, model, executed: 0, elsewhere: 0 };
        let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            while run.executed < 2_000 {
                run.turn();
                match below(&mut run.rng, 40) {
                    0..=5 => run.clock.advance(below(&mut run.rng, 30)),
                    6 => run.space.db().flush().unwrap(),
                    7 => while run.space.expire_due().unwrap().notes > 0 {},
                    8..=9 => run.compare(),
                    _ => {}
                }
            }
            run.compare();
        }));
        if let Err(panic) = caught {
            eprintln!("replay with SEED={seed}");
            std::panic::resume_unwind(panic);
        }
        elsewhere += run.elsewhere;
    }
    assert!(elsewhere > 10, "only {elsewhere} commands had to wait");
}

#[test]
fn members_of_one_hash_are_on_one_page() {
    let (space, _, _) = store();
    let mut turn = space.command_batch(Mode::Device);
    turn.lock(0, [&b"s"[..]].into_iter()).unwrap();
    let both = equal_hashes();
    turn.set_add(0, b"s", both.iter().map(|member| &member[..])).unwrap();
    let set = turn.set(0, b"s").unwrap().unwrap();
    let page = turn.set_page(0, &set, 0, 1, usize::MAX).unwrap();
    assert_eq!((page.cursor, page.items.len()), (0, 2));
}

/// A client can make members of one hash without end.
#[test]
fn members_of_one_hash_are_on_one_page_up_to_a_bound() {
    let (space, _, _) = store();
    let mut turn = space.command_batch(Mode::Device);
    turn.lock(0, [&b"h"[..]].into_iter()).unwrap();
    let (both, value) = (equal_hashes(), vec![b'v'; 10_000]);
    turn.hash_set(0, b"h", both.iter().map(|field| (&field[..], &value[..]))).unwrap();
    let hash = turn.hash(0, b"h").unwrap().unwrap();
    let page = |count, most_bytes| turn.hash_page(0, &hash, 0, count, most_bytes);
    assert_eq!(page(1, 25_000).unwrap().items.len(), 2);
    assert!(matches!(page(1, 15_000), Err(Error::TooLong(_))));
    // It is for what a page shows beyond what was asked for.
    assert_eq!(page(2, 0).unwrap().items.len(), 2);
}

/// Whatever place is tried, the same few of them are behind it.
#[test]
fn a_sample_of_members_of_one_hash_takes_few_searches() {
    const WANTED: u64 = 900;
    // Where XXH3 multiplies zero with eight bytes that are anything.
    const ZERO: [[u8; 8]; 2] = [
        [0xb8, 0xfe, 0x6c, 0x39, 0x23, 0xa4, 0x4b, 0xbe],
        [0xde, 0xd4, 0x6d, 0xe9, 0x83, 0x90, 0x97, 0xdb],
    ];
    let member = |at: u64| [ZERO[0], at.to_le_bytes(), ZERO[1], [0; 8]].concat();
    let members: Vec<Bytes> = (0..3000).map(member).collect();
    let hashes: BTreeSet<u64> =
        members.iter().map(|member| xxhash_rust::xxh3::xxh3_64(member)).collect();
    assert_eq!(hashes.len(), 1);
    let (space, _, _) = store();
    let mut turn = space.command_batch(Mode::Device);
    turn.lock(0, [&b"s"[..]].into_iter()).unwrap();
    turn.set_add(0, b"s", members.iter().map(|member| &member[..])).unwrap();
    turn.commit().unwrap();
    let set = turn.set(0, b"s").unwrap().unwrap();
    let (before, mut sample) = (space.db().metrics().seeks, BTreeSet::new());
    turn.set_sample(0, &set, WANTED, |member| Ok(sample.insert(member.to_vec()))).unwrap();
    let seeks = space.db().metrics().seeks - before;
    assert_eq!(sample.len() as u64, WANTED);
    assert!(seeks < 1000, "{seeks} searches");
}

/// Some clients hold cursors as floating-point numbers, others as integers with a sign.
#[test]
fn cursors_of_members_are_exact_as_floating_point_numbers() {
    const MEMBERS: u64 = 1000;
    let (space, _, _) = store();
    let mut turn = space.command_batch(Mode::Device);
    turn.lock(0, [&b"h"[..], b"s", b"z"].into_iter()).unwrap();
    let all: Vec<Bytes> = (0..MEMBERS).map(|at| format!("member {at}").into_bytes()).collect();
    turn.hash_set(0, b"h", all.iter().map(|member| (&member[..], &b"v"[..]))).unwrap();
    turn.set_add(0, b"s", all.iter().map(|member| &member[..])).unwrap();
    turn.sorted_set_add(0, b"z", AddRule::default(), all.iter().map(|member| (1.0, &member[..])))
        .unwrap();
    let all: BTreeSet<Bytes> = all.into_iter().collect();
    let hash = turn.hash(0, b"h").unwrap().unwrap();
    let set = turn.set(0, b"s").unwrap().unwrap();
    let scores = turn.sorted_set(0, b"z").unwrap().unwrap();
    for (kind, count) in
        [("hash", 1), ("hash", 7), ("set", 1), ("set", 7), ("zset", 1), ("zset", 7)]
    {
        let (mut seen, mut shown, mut cursor) = (BTreeSet::new(), 0, 0);
        loop {
            let (items, next): (Vec<Bytes>, u64) = match kind {
                "hash" => {
                    let page = turn.hash_page(0, &hash, cursor, count, usize::MAX).unwrap();
                    (page.items.into_iter().map(|(field, _)| field).collect(), page.cursor)
                }
                "set" => {
                    let page = turn.set_page(0, &set, cursor, count, usize::MAX).unwrap();
                    (page.items, page.cursor)
                }
                _ => {
                    let page = turn.sorted_set_page(0, &scores, cursor, count, usize::MAX).unwrap();
                    (page.items.into_iter().map(|(member, _)| member).collect(), page.cursor)
                }
            };
            shown += items.len();
            seen.extend(items);
            assert!(next < 1 << 53, "{kind} {next}");
            assert!(next == 0 || next > cursor, "{kind} {next} after {cursor}");
            cursor = next as f64 as u64;
            if cursor == 0 {
                break;
            }
        }
        assert_eq!((shown, &seen), (all.len(), &all), "{kind} by {count}");
        // One that was never given is no silent end.
        for cursor in [1 << 53, u64::MAX] {
            let refused = match kind {
                "hash" => {
                    turn.hash_page(0, &hash, cursor, count, usize::MAX).map(|page| page.cursor)
                }
                "set" => turn.set_page(0, &set, cursor, count, usize::MAX).map(|page| page.cursor),
                _ => turn
                    .sorted_set_page(0, &scores, cursor, count, usize::MAX)
                    .map(|page| page.cursor),
            };
            assert!(matches!(refused, Err(Error::UnknownCursor)), "{kind} {cursor}");
        }
    }
}

#[test]
fn what_is_there_all_the_time_is_scanned_whatever_comes_and_goes() {
    let (space, _, _) = store();
    let mut turn = space.command_batch(Mode::Device);
    turn.lock(0, [&b"s"[..]].into_iter()).unwrap();
    let lasting: BTreeSet<Bytes> = (0..200).map(|at| format!("stays {at}").into_bytes()).collect();
    turn.set_add(0, b"s", lasting.iter().map(|member| &member[..])).unwrap();
    let (mut seen, mut cursor, mut round) = (BTreeSet::new(), 0, 0);
    loop {
        let (came, gone) = (format!("comes {round}"), format!("comes {}", round / 2));
        turn.set_add(0, b"s", [came.as_bytes()].into_iter()).unwrap();
        turn.set_remove(0, b"s", [gone.as_bytes()].into_iter()).unwrap();
        let set = turn.set(0, b"s").unwrap().unwrap();
        let page = turn.set_page(0, &set, cursor, 7, usize::MAX).unwrap();
        seen.extend(page.items);
        (cursor, round) = (page.cursor, round + 1);
        if cursor == 0 {
            break;
        }
    }
    assert!(round > 20 && seen.is_superset(&lasting));
}

#[test]
fn random_members_are_members_and_samples_have_none_twice() {
    let (space, _, _) = store();
    let mut turn = space.command_batch(Mode::Device);
    turn.lock(0, [&b"s"[..]].into_iter()).unwrap();
    for size in [1_u64, 5, 128, 129, 2000] {
        turn.delete(0, [&b"s"[..]].into_iter()).unwrap();
        let all: BTreeSet<Bytes> = (0..size).map(|at| at.to_be_bytes().to_vec()).collect();
        turn.set_add(0, b"s", all.iter().map(|member| &member[..])).unwrap();
        let set = turn.set(0, b"s").unwrap().unwrap();
        for count in [1, 3, size / 2, size, size + 9] {
            let mut sample = Vec::new();
            turn.set_sample(0, &set, count, |member| {
                sample.push(member.to_vec());
                Ok(true)
            })
            .unwrap();
            let different: BTreeSet<Bytes> = sample.iter().cloned().collect();
            assert_eq!((sample.len(), different.len()), (count.min(size) as usize, sample.len()));
            assert!(different.is_subset(&all), "{count} of {size}");
        }
        let mut repeated = BTreeSet::new();
        turn.set_random(0, &set, 2000, |member| {
            repeated.insert(member.to_vec());
            Ok(true)
        })
        .unwrap();
        assert!(repeated.is_subset(&all) && repeated.len() as u64 >= size.min(100), "of {size}");
    }
}

#[test]
fn members_that_do_not_fit_are_refused_and_change_nothing() {
    let (space, _, _) = store();
    let mut turn = space.command_batch(Mode::Device);
    turn.lock(0, [&b"k"[..]].into_iter()).unwrap();
    let (fits, too_long) = (vec![7; MAX_MEMBER_BYTES], vec![7; MAX_MEMBER_BYTES + 1]);
    let both = [(1.0, &fits[..]), (2.0, &too_long[..])];
    let refused = turn.sorted_set_add(0, b"k", AddRule::default(), both.into_iter());
    assert!(matches!(refused, Err(Error::TooLong(_))), "{refused:?}");
    assert_eq!(turn.key_type(0, b"k").unwrap(), None);
    turn.sorted_set_add(0, b"k", AddRule::default(), both.into_iter().take(1)).unwrap();
    turn.commit().unwrap();
    let set = turn.sorted_set(0, b"k").unwrap().unwrap();
    assert_eq!(turn.sorted_set_score(0, &set, &fits).unwrap(), Some(1.0));
}
