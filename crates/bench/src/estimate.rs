//! How two sides that took turns compare, with intervals that hold the truth 19 times out of 20.
//!
//! What the machine does over time hits both sides of a turn alike, so turns are compared with each other and not the
//! sides as wholes. Turns that follow each other are alike, too: they are put together in `BLOCKS` blocks, which are
//! taken as independent. Pure.

use serde::{Deserialize, Serialize};

/// Blocks of turns.
const BLOCKS: usize = 50;
/// Turns of which nothing can be said.
pub const MIN_TURNS: usize = 20;
/// A normal variable is within this many standard deviations 19 times out of 20.
const Z: f64 = 1.959_964;

/// What two sides took in one turn.
pub type Turn = [f64; 2];

/// The second side over the first.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Ratio {
    /// The estimate.
    pub ratio: f64,
    /// The lower end of its interval.
    pub low: f64,
    /// The upper end.
    pub high: f64,
}

/// The ratio of what the sides took altogether, whatever a few turns took: by the jackknife over blocks (Efron and Stein,
/// 1981) of the logarithm. `None` of fewer than [`MIN_TURNS`] turns, or where a side took nothing.
pub fn of_totals(turns: &[Turn]) -> Option<Ratio> {
    let total = sum(turns);
    let whole = log_ratio(total).filter(|_| turns.len() >= MIN_TURNS)?;
    let without = |block: &[Turn]| {
        let part = sum(block);
        log_ratio([total[0] - part[0], total[1] - part[1]])
    };
    let left_out: Vec<f64> = blocks(turns).map(without).collect::<Option<_>>()?;
    let count = left_out.len() as f64;
    let mean = left_out.iter().sum::<f64>() / count;
    let squares: f64 = left_out.iter().map(|one| (one - mean).powi(2)).sum();
    let error = (squares * (count - 1.0) / count).sqrt();
    Some(around(whole, student(count - 1.0) * error))
}

/// The ratio of a typical turn: the mean over blocks of the median within each, which turns that something disturbed do
/// not move.
pub fn of_typical_turn(turns: &[Turn]) -> Option<Ratio> {
    let medians: Vec<f64> = match turns.len() < MIN_TURNS {
        true => None,
        false => blocks(turns).map(median_of).collect::<Option<_>>(),
    }?;
    let count = medians.len() as f64;
    let mean = medians.iter().sum::<f64>() / count;
    let squares: f64 = medians.iter().map(|one| (one - mean).powi(2)).sum();
    let error = (squares / (count - 1.0) / count).sqrt();
    Some(around(mean, student(count - 1.0) * error))
}

fn around(log: f64, reach: f64) -> Ratio {
    Ratio { ratio: log.exp(), low: (log - reach).exp(), high: (log + reach).exp() }
}

fn sum(turns: &[Turn]) -> Turn {
    turns.iter().fold([0.0; 2], |sum, turn| [sum[0] + turn[0], sum[1] + turn[1]])
}

fn log_ratio([first, second]: Turn) -> Option<f64> {
    (first > 0.0 && second > 0.0).then(|| (second / first).ln())
}

/// Neighbouring turns together, in blocks that differ by at most one turn.
fn blocks(turns: &[Turn]) -> impl Iterator<Item = &[Turn]> {
    let count = turns.len().clamp(1, BLOCKS);
    (0..count).map(move |at| &turns[turns.len() * at / count..turns.len() * (at + 1) / count])
}

fn median_of(block: &[Turn]) -> Option<f64> {
    let mut logs: Vec<f64> = block.iter().copied().map(log_ratio).collect::<Option<_>>()?;
    logs.sort_by(f64::total_cmp);
    let (low, high) = (logs.get((logs.len().max(1) - 1) / 2)?, logs.get(logs.len() / 2)?);
    Some(f64::midpoint(*low, *high))
}

/// How many standard errors Student's law of this many degrees of freedom reaches 19 times out of 20: the expansion of
/// Cornish and Fisher, which is right to 0.001 from 19 on.
fn student(freedom: f64) -> f64 {
    let first = (Z.powi(3) + Z) / (4.0 * freedom);
    let second = (5.0 * Z.powi(5) + 16.0 * Z.powi(3) + 3.0 * Z) / (96.0 * freedom.powi(2));
    Z + first + second
}

#[cfg(test)]
mod tests {
    use super::*;
    use terrace_base::{Rng, SplitMix64};

    /// What two sides take whose true ratio is `ratio`: the machine gets slower by half over the run and swings meanwhile,
    /// each slice has 17 % of noise, and of one turn in `stall_every` one side takes 50 times as long.
    fn made(seed: u64, turns: usize, ratio: f64, stall_every: u64) -> Vec<Turn> {
        let mut rng = SplitMix64::new(seed);
        // Twelve uniform ones make a normal one, nearly.
        let mut normal = move || {
            let sum: f64 = (0..12).map(|_| rng.below(1 << 30) as f64 / f64::from(1 << 30)).sum();
            (sum - 6.0, rng.below(stall_every) == 0, rng.below(2) as usize)
        };
        let turn = |at: usize| {
            let along = at as f64 / turns as f64;
            let machine = 1000.0 * (1.0 + along / 2.0) * (1.0 + 0.3 * (along * 60.0).sin());
            let (one, is_stalled, side) = normal();
            let (other, _, _) = normal();
            let mut took = [machine * (0.17 * one).exp(), ratio * machine * (0.17 * other).exp()];
            if is_stalled {
                took[side] *= 50.0;
            }
            took
        };
        (0..turns).map(turn).collect()
    }

    const NEVER: u64 = 1 << 60;

    fn holds(ratio: Ratio, truth: f64) -> bool {
        ratio.low <= truth && truth <= ratio.high
    }

    #[test]
    fn a_difference_of_one_percent_shows_in_noise_of_seventeen() {
        for seed in 1..=10 {
            let turns = made(seed, 40_000, 1.01, NEVER);
            for ratio in [of_totals(&turns).unwrap(), of_typical_turn(&turns).unwrap()] {
                assert!(ratio.low > 1.0 && ratio.high < 1.02, "{seed}: {ratio:?}");
            }
        }
    }

    #[test]
    fn intervals_hold_the_truth_about_19_times_out_of_20() {
        let (mut totals, mut typical) = (0, 0);
        for seed in 0..400 {
            let turns = made(1000 + seed, 1000, 0.98, NEVER);
            totals += usize::from(holds(of_totals(&turns).unwrap(), 0.98));
            typical += usize::from(holds(of_typical_turn(&turns).unwrap(), 0.98));
        }
        // 380 are expected, and 4.4 is the standard deviation.
        assert!((360..=397).contains(&totals), "{totals} of 400");
        assert!((360..=397).contains(&typical), "{typical} of 400");
    }

    #[test]
    fn stalls_widen_the_interval_of_the_totals_and_not_that_of_a_typical_turn() {
        let width = |ratio: Ratio| ratio.high - ratio.low;
        let (calm, stalled) = (made(5, 4000, 1.05, NEVER), made(5, 4000, 1.05, 100));
        let (before, after) = (of_typical_turn(&calm).unwrap(), of_typical_turn(&stalled).unwrap());
        assert!(width(after) < 1.5 * width(before), "{before:?} {after:?}");
        assert!((after.ratio - 1.05).abs() < 0.03, "{after:?}");
        let (before, after) = (of_totals(&calm).unwrap(), of_totals(&stalled).unwrap());
        assert!(width(after) > 3.0 * width(before), "{before:?} {after:?}");
    }

    #[test]
    fn what_one_side_spends_in_a_few_turns_is_in_the_totals() {
        let mut turns = vec![[100.0, 100.0]; 2000];
        turns.iter_mut().step_by(20).for_each(|turn| turn[1] = 300.0);
        let totals = of_totals(&turns).unwrap();
        assert!((totals.ratio - 1.1).abs() < 1e-9 && totals.high - totals.low < 1e-6, "{totals:?}");
        assert!((of_typical_turn(&turns).unwrap().ratio - 1.0).abs() < 1e-9);
    }

    #[test]
    fn of_too_little_nothing_is_said() {
        assert_eq!(of_totals(&[[1.0, 1.0]; MIN_TURNS - 1]), None);
        assert_eq!(of_typical_turn(&[]), None);
        assert_eq!(of_totals(&[[0.0, 1.0]; 100]), None);
        let one = Ratio { ratio: 1.0, low: 1.0, high: 1.0 };
        assert_eq!(of_totals(&[[1.0, 1.0]; MIN_TURNS]), Some(one));
        assert_eq!(of_typical_turn(&[[1.0, 1.0]; MIN_TURNS]), Some(one));
    }

    #[test]
    fn the_reach_of_students_law_is_that_of_the_tables() {
        for (freedom, reach) in [(19.0, 2.093), (29.0, 2.045), (49.0, 2.010), (1e6, 1.960)] {
            assert!((student(freedom) - reach).abs() < 0.001, "{freedom}: {}", student(freedom));
        }
    }
}
