//! How a workload measures, on a store that only notes what it is asked.

use super::*;
use crate::store::{Cursor, MetadataBytes};
use std::sync::PoisonError;

/// A store that has every key, and had settled at `calm`.
struct Fake {
    calm: Instant,
    asked: Arc<Mutex<Vec<Vec<u8>>>>,
}

impl Store for Fake {
    fn put(&self, _key: &[u8], _value: &[u8]) -> Result<()> {
        Ok(())
    }

    fn get(&self, key: &[u8], see: &mut dyn FnMut(&[u8])) -> Result<bool> {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner).push(key.to_vec());
        see(b"value");
        Ok(true)
    }

    fn delete(&self, _key: &[u8]) -> Result<()> {
        Ok(())
    }

    fn multi_get(&self, keys: &[Vec<u8>], _see: &mut dyn FnMut(&[u8])) -> Result<usize> {
        Ok(keys.len())
    }

    fn cursor(&self) -> Result<Box<dyn Cursor + '_>> {
        anyhow::bail!("it has no order")
    }

    fn flush(&self) -> Result<()> {
        Ok(())
    }

    fn settle(&self) -> Result<Instant> {
        Ok(self.calm)
    }

    fn metadata_bytes(&self) -> Result<MetadataBytes> {
        Ok(MetadataBytes::default())
    }

    fn sort_values(&self) -> Result<()> {
        Ok(())
    }

    fn stats_text(&self) -> String {
        String::new()
    }

    fn options_text(&self) -> String {
        String::new()
    }

    fn version(&self) -> String {
        String::new()
    }

    fn close(self: Box<Self>) -> Result<()> {
        Ok(())
    }
}

/// Runs `work` on a bench of a fake; what was asked of the store, and the rows.
fn on_fake(work: impl FnOnce(&Bench<'_>) -> Result<()>) -> (Vec<Vec<u8>>, Vec<Row>) {
    let dir = tempfile::tempdir().unwrap();
    let mut job = job(Engine::Terrace, StoreKind::Basic, &[], dir.path());
    job.threads = 1;
    let events = Arc::new(Mutex::new(Vec::new()));
    let sink = events.clone();
    let observer = Observer::new(move |event| sink.lock().unwrap().push(event));
    let asked = Arc::new(Mutex::new(Vec::new()));
    let facts = Facts {
        engine: job.engine,
        repeat: 1,
        variant: String::new(),
        options: String::new(),
        version: String::new(),
        machine: String::new(),
        commit: String::new(),
    };
    let bench = Bench {
        job: &job,
        observer: &observer,
        store: Box::new(Fake { calm: Instant::now(), asked: asked.clone() }),
        keys: KeySpace::new(job.shape.key_size, job.shape.keys).unwrap(),
        facts,
    };
    work(&bench).unwrap();
    drop(bench);
    let row = |event| if let Event::Row(row) = event { Some(*row) } else { None };
    let events = std::mem::take(&mut *events.lock().unwrap());
    let asked = std::mem::take(&mut *asked.lock().unwrap());
    (asked, events.into_iter().filter_map(row).collect())
}

/// The store was calm before the last write was acknowledged: however long it takes to be sure of that, nothing is
/// added.
#[test]
fn the_time_to_settled_ends_when_the_calm_begins() {
    let (_, rows) = on_fake(|bench| {
        let phase = Phase { threads: 1, ops: 10, duration: None, time_every: 1 };
        let make = |thread| {
            let sampler = bench.sampler(&Distribution::Uniform, bench.shape().keys)?;
            Ok(point_read::PointReader::new(bench, "fill", thread, sampler, 0.0))
        };
        bench.measure_to_settled("fill", phase, 10, |_| 10, make)
    });
    assert_eq!(names(&rows), ["fill", "fill-unsettled"]);
    assert_eq!(rows[0].seconds, rows[1].seconds);
}

/// Else the cache would have what is measured first.
#[test]
fn a_warm_up_asks_for_other_keys_than_what_is_measured() {
    let (asked, rows) = on_fake(point_read::readrandom);
    assert_eq!((rows.len(), rows[0].ops), (1, 2000));
    // A tenth of the operations, unless two seconds were over before.
    let warm_up = asked.len() - 2000;
    assert!((1..=200).contains(&warm_up), "{warm_up}");
    assert_ne!(asked[..warm_up], asked[warm_up..2 * warm_up]);
}
