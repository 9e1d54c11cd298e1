//! A file system that films itself: crash images at its own operations, each with what must be and
//! what may be in it.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use terrace::vfs::SimVfs;
use terrace_base::rng::{Rng, SplitMix64};
use terrace_vfs::{Call, Interposed};

/// What the writer has been promised so far, in batches.
#[derive(Debug, Default)]
pub struct Marks {
    /// Acknowledged as surviving a power cut.
    pub durable: AtomicU64,
    /// Acknowledged as surviving a killed process.
    pub handed_over: AtomicU64,
    /// Begun.
    pub issued: AtomicU64,
    /// Finished checkpoints, with the batches they hold.
    pub checkpoints: Mutex<Vec<(PathBuf, u64)>>,
}

/// Writes the files of a failed image below `TERRACE_TEST_DUMP`, if that is set.
pub fn dump(image: &SimVfs) {
    let Ok(target) = std::env::var("TERRACE_TEST_DUMP") else { return };
    for (path, _) in image.files() {
        let to = Path::new(&target).join(path.strip_prefix("/").unwrap_or(&path));
        std::fs::create_dir_all(to.parent().unwrap()).unwrap();
        std::fs::write(to, image.read_file(&path).unwrap()).unwrap();
    }
}

/// What a crash left, and what must be in it.
pub struct Shot {
    pub image: SimVfs,
    pub killed: bool,
    pub floor: u64,
    pub ceiling: u64,
    pub op: u64,
    pub seed: u64,
    pub checkpoints: Vec<(PathBuf, u64)>,
}

struct Film {
    rng: SplitMix64,
    one_in: u64,
    left: u64,
    shots: Vec<Shot>,
}

/// A simulated file system that takes images of itself before and after its operations.
#[derive(Clone)]
pub struct Camera {
    pub sim: SimVfs,
    pub marks: Arc<Marks>,
    film: Arc<Mutex<Film>>,
}

impl Camera {
    /// Takes up to `left` images, one in `one_in` moments.
    pub fn new(sim: SimVfs, seed: u64, one_in: u64, left: u64) -> Self {
        let film = Film { rng: SplitMix64::new(seed), one_in, left, shots: Vec::new() };
        Self { sim, marks: Arc::default(), film: Arc::new(Mutex::new(film)) }
    }

    pub fn take_film(&self) -> Vec<Shot> {
        std::mem::take(&mut self.film.lock().unwrap().shots)
    }

    fn moment(&self) {
        let (seed, killed) = {
            let mut film = self.film.lock().unwrap();
            let one_in = film.one_in;
            if film.left == 0 || !film.rng.one_in(one_in) {
                return;
            }
            film.left -= 1;
            (film.rng.next_u64(), film.rng.one_in(5))
        };
        let promised = if killed { &self.marks.handed_over } else { &self.marks.durable };
        // The floor before the image and the ceiling after it: both hold for it.
        let floor = promised.load(Ordering::SeqCst);
        let checkpoints = self.marks.checkpoints.lock().unwrap().clone();
        let op = self.sim.op_count();
        let image = if killed { self.sim.kill_image() } else { self.sim.crash_image(seed) };
        let ceiling = self.marks.issued.load(Ordering::SeqCst);
        let shot = Shot { image, killed, floor, ceiling, op, seed, checkpoints };
        self.film.lock().unwrap().shots.push(shot);
    }
}

impl Interposed for Camera {
    type Files = SimVfs;

    fn files(&self) -> &SimVfs {
        &self.sim
    }

    fn around<T>(
        &self,
        call: Call<'_>,
        _: &Path,
        work: impl FnOnce() -> terrace_base::Result<T>,
    ) -> terrace_base::Result<T> {
        if matches!(call, Call::Open | Call::List | Call::Len | Call::Exists | Call::LockShared) {
            return work();
        }
        self.moment();
        let result = work();
        self.moment();
        result
    }
}
