//! Random commands in random turns, beside a model: turns that are committed, abandoned, begun in
//! memory and ended where they may wait; clocks that go on, sweeps, flushes of memtables, stores
//! that are opened again and stores that lose power.

use super::commands::Command;
use super::harness::{PLACEMENT, below, compare, one_in, small_options, stopped_clock};
use super::model::Model;
use std::sync::Arc;
use terrace::vfs::SimVfs;
use terrace::{Db, SyncMode, WriteOptions};
use terrace_base::ManualClock;
use terrace_base::rng::SplitMix64;
use terrace_keyspace::{CommandBatch, Error, Keyspace, Mode, Placement, Result, convert};

const DURABLE: WriteOptions = WriteOptions { sync: Some(SyncMode::Batch) };

struct Run {
    rng: SplitMix64,
    vfs: SimVfs,
    clock: ManualClock,
    space: Arc<Keyspace>,
    model: Model,
    executed: u64,
    elsewhere: u64,
}

impl Run {
    fn new(seed: u64) -> Self {
        let (vfs, clock) = (SimVfs::new(seed), stopped_clock());
        let space = Keyspace::open_without_active_expire(
            "/db",
            small_options(&vfs, &clock),
            Some(PLACEMENT),
        )
        .unwrap();
        let (rng, model) = (SplitMix64::new(seed), Model::default());
        Self { rng, vfs, clock, space, model, executed: 0, elsewhere: 0 }
    }

    fn turn(&mut self) {
        let commands: Vec<(u8, Command)> = (0..1 + below(&mut self.rng, 8))
            .map(|_| {
                let db = below(&mut self.rng, 2) as u8;
                (db, Command::draw(&mut self.rng, self.clock.now_ms()))
            })
            .collect();
        let flushes = commands.iter().any(|(_, command)| command.flushes());
        if flushes || one_in(&mut self.rng, 3) {
            self.device_turn(&commands, flushes);
        } else {
            self.memory_turn(&commands);
        }
    }

    /// Executes one command and compares; false if it has to be executed elsewhere.
    fn execute(
        &mut self,
        turn: &mut CommandBatch,
        db: u8,
        command: &Command,
        model: &mut Model,
    ) -> bool {
        let outcome: Result<String> = command.run(turn, db);
        let reply = match outcome {
            Err(Error::Elsewhere(_)) if turn.mode() == Mode::Memory => return false,
            outcome => outcome.unwrap(),
        };
        let wanted = command.expect(model, db, self.clock.now_ms());
        assert_eq!(reply, wanted, "{command:?}");
        self.executed += 1;
        true
    }

    fn device_turn(&mut self, commands: &[(u8, Command)], flushes: bool) {
        let mut turn = self.space.command_batch(Mode::Device);
        if flushes {
            turn.lock_everything();
        } else {
            let keys = commands.iter().flat_map(|(db, command)| {
                command.written_keys().into_iter().map(move |key| (*db, key))
            });
            turn.lock_in(keys).unwrap();
        }
        let mut model = self.model.clone();
        for (db, command) in commands {
            turn.next_command();
            assert!(self.execute(&mut turn, *db, command, &mut model));
        }
        self.end(turn, model);
    }

    fn memory_turn(&mut self, commands: &[(u8, Command)]) {
        let mut turn = self.space.command_batch(Mode::Memory);
        let mut model = self.model.clone();
        for (db, command) in commands {
            turn.next_command();
            turn.lock(*db, command.written_keys().into_iter()).unwrap();
            if !self.execute(&mut turn, *db, command, &mut model) {
                // As the server does: what came before is committed, the command starts again.
                turn.commit_with(&DURABLE).unwrap();
                self.model = model;
                self.elsewhere += 1;
                return self.device_turn(&[(*db, command.clone())], false);
            }
        }
        self.end(turn, model);
    }

    fn end(&mut self, mut turn: CommandBatch, model: Model) {
        match below(&mut self.rng, 8) {
            0 => turn.abandon(),
            1 => drop(turn),
            _ => {
                turn.commit_with(&DURABLE).unwrap();
                self.model = model;
            }
        }
    }

    fn between(&mut self) {
        match below(&mut self.rng, 60) {
            0..=9 => {
                let ms = below(&mut self.rng, 30);
                self.clock.advance(ms);
            }
            10..=11 => self.space.db().flush().unwrap(),
            12..=15 => while self.space.expire_due().unwrap().notes > 0 {},
            16 => {
                self.space.close().unwrap();
                self.open(self.vfs.clone());
            }
            17 => {
                // Without an end: what was committed is on the device.
                let image = self.vfs.crash_image(below(&mut self.rng, 1 << 40));
                self.space.close().unwrap();
                self.open(image);
            }
            _ => {}
        }
    }

    fn open(&mut self, vfs: SimVfs) {
        self.vfs = vfs;
        self.space = Keyspace::open_without_active_expire(
            "/db",
            small_options(&self.vfs, &self.clock),
            Some(PLACEMENT),
        )
        .unwrap();
        compare(&self.space, &self.model, self.clock.now_ms());
    }

    /// The store with the other placement has the same, also when everything that will expire has.
    fn check_converted(&mut self) {
        let other = match PLACEMENT {
            Placement::Range => Placement::Slots,
            Placement::Slots => Placement::Range,
        };
        let options = small_options(&SimVfs::new(1), &self.clock);
        let to = Db::open("/to", options.clone()).unwrap();
        let converted = convert(self.space.db(), &to, other).unwrap();
        assert!(converted.keys >= self.model.live(self.clock.now_ms()).count() as u64);
        to.close().unwrap();
        let copy = Keyspace::open_without_active_expire("/to", options, Some(other)).unwrap();
        compare(&copy, &self.model, self.clock.now_ms());
        self.clock.advance(1 << 40);
        while copy.expire_due().unwrap().notes > 0 {}
        compare(&copy, &self.model, self.clock.now_ms());
        let mut turn = copy.command_batch(Mode::Device);
        turn.lock_everything();
        turn.flush(0).unwrap();
        turn.commit().unwrap();
        self.model.flush(Some(0));
        compare(&copy, &self.model, self.clock.now_ms());
    }
}

#[test]
fn random_commands_answer_as_a_model_does() {
    let seeds = match std::env::var("SEED").ok().and_then(|seed| seed.parse().ok()) {
        Some(seed) => seed..seed + 1,
        None => 0..4,
    };
    let mut elsewhere = 0;
    for seed in seeds {
        let mut run = Run::new(seed);
        let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            while run.executed < 1_500 {
                run.turn();
                run.between();
            }
            compare(&run.space, &run.model, run.clock.now_ms());
            run.check_converted();
            run.elsewhere
        }));
        match caught {
            Ok(count) => elsewhere += count,
            Err(panic) => {
                eprintln!("replay with SEED={seed}");
                std::panic::resume_unwind(panic);
            }
        }
    }
    assert!(elsewhere > 20, "only {elsewhere} commands had to wait");
}
