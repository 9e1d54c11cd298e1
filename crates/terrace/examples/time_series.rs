//! Measurements by sensor and time: one range to read, one write to forget a day.
//!
//! `cargo run --example time_series -p terrace`

use terrace::{Db, Options, ReadOptions};

const DAY: u32 = 86_400;

/// `sensor / second`, so that the measurements of one sensor lie together in time order.
fn key(sensor: &str, second: u32) -> Vec<u8> {
    [sensor.as_bytes(), b"/", &second.to_be_bytes()].concat()
}

fn mean(db: &Db, sensor: &str, from: u32, to: u32) -> terrace::Result<Option<f64>> {
    let mut sum = 0.0;
    let mut count = 0u32;
    let mut iter = db.range(key(sensor, from)..key(sensor, to))?;
    iter.seek_to_first()?;
    while iter.valid() {
        if let Some(bytes) = iter.value().first_chunk() {
            sum += f64::from_le_bytes(*bytes);
            count += 1;
        }
        iter.next()?;
    }
    Ok((count > 0).then(|| sum / f64::from(count)))
}

fn main() -> terrace::Result<()> {
    let dir = std::env::temp_dir().join(format!("terrace-series-{}", std::process::id()));
    let db = Db::open(&dir, Options::default())?;
    for second in (0..3 * DAY).step_by(60) {
        let warmth =
            20.0 + 5.0 * (f64::from(second) / f64::from(DAY) * std::f64::consts::TAU).sin();
        db.put(key("roof", second), warmth.to_le_bytes())?;
    }
    // A snapshot goes on seeing the day that is dropped.
    let before = db.snapshot();
    db.delete_range(key("roof", 0), key("roof", DAY))?;
    println!("first day: {:?}", mean(&db, "roof", 0, DAY)?);
    println!("morning of the second day: {:?}", mean(&db, "roof", DAY, DAY + DAY / 2)?);
    let old = ReadOptions { snapshot: Some(before), ..ReadOptions::default() };
    println!("in the snapshot: {} measurements", db.iter_with(&old)?.entries().count());
    db.close()?;
    let _ = std::fs::remove_dir_all(&dir);
    Ok(())
}
