//! A durable queue: keys are numbers in big-endian order, so the oldest job is the first key.
//!
//! `cargo run --example queue -p terrace [DIRECTORY]`

use terrace::{Db, Options, SyncMode, WriteBatch};

/// Jobs in the order in which they were pushed.
struct Queue {
    db: Db,
    next: u64,
}

impl Queue {
    fn open(dir: &std::path::Path) -> terrace::Result<Self> {
        // Every push and pop is on the device before it returns.
        let options = Options { sync: SyncMode::Batch, ..Options::default() };
        let db = Db::open(dir, options)?;
        let mut last = db.iter()?;
        last.seek_to_last()?;
        let next = match last.valid() {
            true => last.key().first_chunk().map_or(0, |key| u64::from_be_bytes(*key) + 1),
            false => 0,
        };
        Ok(Self { db, next })
    }

    fn push(&mut self, jobs: &[&str]) -> terrace::Result<()> {
        let mut batch = WriteBatch::new();
        for job in jobs {
            batch.put(self.next.to_be_bytes(), job);
            self.next += 1;
        }
        self.db.write(batch)
    }

    fn pop(&mut self) -> terrace::Result<Option<String>> {
        let mut first = self.db.iter()?;
        first.seek_to_first()?;
        if !first.valid() {
            return Ok(None);
        }
        let job = String::from_utf8_lossy(first.value()).into_owned();
        self.db.delete(first.key())?;
        Ok(Some(job))
    }
}

fn main() -> terrace::Result<()> {
    let given = std::env::args_os().nth(1).map(std::path::PathBuf::from);
    let dir = given.clone().unwrap_or_else(|| std::env::temp_dir().join("terrace-queue"));
    let mut queue = Queue::open(&dir)?;
    queue.push(&["wash the rice", "boil the water", "cook"])?;
    while let Some(job) = queue.pop()? {
        println!("{job}");
    }
    queue.db.close()?;
    if given.is_none() {
        let _ = std::fs::remove_dir_all(&dir);
    }
    Ok(())
}
