//! The size of a store's directory over time.

use crate::on_drop::OnDrop;
use crate::workload::watch::Watch;
use anyhow::{Result, anyhow};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use terrace_workload::usage;

/// The state at one moment.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sample {
    /// Since the watch started.
    pub seconds: f64,
    /// Operations finished by then.
    pub ops: u64,
    /// Bytes on disk.
    pub dir_bytes: u64,
}

/// Does `work` while the size of `dir` is sampled, at the beginning, at the end, and `every` so
/// often between.
pub fn sampled<T>(
    dir: &Path,
    watch: &Watch,
    every: Duration,
    work: impl FnOnce() -> Result<T>,
) -> Result<(T, Vec<Sample>)> {
    // Files may go while they are listed: then this sample is left out.
    sampled_by(|| usage::dir_bytes(dir).ok(), watch, every, work)
}

/// As [`sampled`]; `look` gives the size, or that a sample is to be left out.
fn sampled_by<T>(
    look: impl Fn() -> Option<u64> + Sync,
    watch: &Watch,
    every: Duration,
    work: impl FnOnce() -> Result<T>,
) -> Result<(T, Vec<Sample>)> {
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let sampling = scope.spawn(|| {
            let mut samples = Vec::new();
            loop {
                let last = over.load(Ordering::Acquire);
                if let Some(dir_bytes) = look() {
                    let seconds = watch.elapsed().as_secs_f64();
                    samples.push(Sample { seconds, ops: watch.ops(), dir_bytes });
                }
                if last {
                    return samples;
                }
                std::thread::park_timeout(every);
            }
        });
        let result = {
            let _ending = OnDrop(|| {
                over.store(true, Ordering::Release);
                sampling.thread().unpark();
            });
            work()
        };
        let samples = sampling.join().map_err(|_| anyhow!("the sampler panicked"))?;
        Ok((result?, samples))
    })
}

/// Each sample's bytes over those that live.
pub fn amplification(samples: &[Sample], live_bytes: u64) -> Vec<f64> {
    samples.iter().map(|sample| sample.dir_bytes as f64 / live_bytes.max(1) as f64).collect()
}

/// The highest of these; `None` without samples.
pub fn highest(samples: &[Sample], live_bytes: u64) -> Option<f64> {
    amplification(samples, live_bytes).into_iter().reduce(f64::max)
}

/// Operations per second since the sample before; 0 at the first.
pub fn rates(samples: &[Sample]) -> Vec<f64> {
    let between = |pair: &[Sample]| {
        let seconds = pair[1].seconds - pair[0].seconds;
        if seconds > 0.0 { (pair[1].ops - pair[0].ops) as f64 / seconds } else { 0.0 }
    };
    let first = samples.first().map(|_| 0.0);
    first.into_iter().chain(samples.windows(2).map(between)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicU64;
    use std::time::Instant;

    /// No sample takes longer, on whatever machine: a guard against hanging, not a bound.
    const HANG_GUARD: Duration = Duration::from_secs(600);

    /// However long it is until the next sample.
    #[test]
    fn a_panic_ends_the_sampling() {
        let dir = tempfile::tempdir().unwrap();
        let watch = Watch::new();
        let day = Duration::from_secs(86_400);
        let work = || -> Result<()> { panic!("as asked") };
        let panics = || sampled(dir.path(), &watch, day, work);
        assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(panics)).is_err());
    }

    #[test]
    fn a_directory_is_sampled_while_it_grows_and_shrinks() {
        let dir = tempfile::tempdir().unwrap();
        let watch = Watch::new();
        let looks = AtomicU64::new(0);
        let look = || {
            let dir_bytes = usage::dir_bytes(dir.path()).ok();
            looks.fetch_add(1, Ordering::SeqCst);
            dir_bytes
        };
        let count = || looks.load(Ordering::SeqCst);
        let wait_for = |wanted: u64| {
            let start = Instant::now();
            while count() < wanted {
                assert!(start.elapsed() < HANG_GUARD, "no sample {wanted}");
                std::thread::sleep(Duration::from_millis(1));
            }
        };
        let (value, samples) = sampled_by(look, &watch, Duration::from_millis(2), || {
            wait_for(1);
            std::fs::write(dir.path().join("f"), vec![1; 1 << 20])?;
            // The first of them may have begun before.
            wait_for(count() + 2);
            std::fs::remove_file(dir.path().join("f"))?;
            Ok(7)
        })
        .unwrap();
        assert_eq!((value, samples[0].dir_bytes), (7, 0));
        assert_eq!(samples.last().unwrap().dir_bytes, 0);
        assert!(highest(&samples, 1 << 20).unwrap() >= 1.0, "{samples:?}");
        assert!(samples.windows(2).all(|pair| pair[0].seconds <= pair[1].seconds));
        let refused: Result<((), _)> =
            sampled(dir.path(), &watch, Duration::from_secs(60), || Err(anyhow!("as asked")));
        assert_eq!(refused.unwrap_err().to_string(), "as asked");
    }

    #[test]
    fn series_are_ratios_and_differences() {
        let sample = |seconds, ops, dir_bytes| Sample { seconds, ops, dir_bytes };
        let samples = [sample(0.0, 0, 100), sample(2.0, 1000, 300), sample(2.5, 1100, 150)];
        assert_eq!(amplification(&samples, 100), [1.0, 3.0, 1.5]);
        assert_eq!(highest(&samples, 100), Some(3.0));
        assert_eq!(rates(&samples), [0.0, 500.0, 200.0]);
        assert_eq!((highest(&[], 1), rates(&[])), (None, Vec::new()));
    }
}
