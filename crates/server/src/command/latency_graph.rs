//! `LATENCY GRAPH`: how long an event took of late, drawn with characters as Redis draws it.
//!
//! ```text
//! command - high 500 ms, low 101 ms (all time high 500 ms)
//! --------------------------------------------------------------------------------
//!    #_
//!    ||
//!    ||o
//! __#|||
//!
//! 222211        each column is a spike; below it is how long ago it was
//! 000055
//! mmmmss
//! ```

use crate::latency::Spike;
use std::fmt::Write;

/// Spikes in a row of columns; more come below.
const COLUMNS: usize = 80;

/// Lines of the columns.
const ROWS: usize = 4;

/// What stands at the top of a column, by how much of its line it fills.
const TOPS: [char; 3] = ['_', 'o', '#'];

/// The page for an event. `spikes` are all that are kept of it, oldest first; there is one.
pub(super) fn draw(name: &str, spikes: &[Spike], most_ms: u64, now_s: u64) -> String {
    let took = || spikes.iter().map(|spike| spike.took_ms);
    let (low, high) = (took().min().unwrap_or(0), took().max().unwrap_or(0));
    let mut page = String::new();
    // Writing to a string does not fail.
    let _ = writeln!(page, "{name} - high {high} ms, low {low} ms (all time high {most_ms} ms)");
    let _ = writeln!(page, "{}", "-".repeat(COLUMNS));
    for (at, part) in spikes.chunks(COLUMNS).enumerate() {
        if at > 0 {
            page.push('\n');
        }
        draw_part(&mut page, part, (low, high), now_s);
    }
    page
}

fn draw_part(page: &mut String, part: &[Spike], (low, high): (u64, u64), now_s: u64) {
    let steps = (TOPS.len() * ROWS) as u64;
    let heights: Vec<usize> = part
        .iter()
        .map(|spike| {
            let above = u128::from(spike.took_ms - low) * u128::from(steps);
            let height = above / u128::from((high - low).max(1));
            height.min(u128::from(steps - 1)) as usize
        })
        .collect();
    for row in (0..ROWS).rev() {
        let line = heights.iter().map(|height| match height.checked_sub(row * TOPS.len()) {
            Some(top) => TOPS.get(top).copied().unwrap_or('|'),
            None => ' ',
        });
        page.extend(line.chain(['\n']));
    }
    // A line between the columns and what is said of them.
    page.extend(std::iter::repeat_n(' ', part.len()).chain(['\n']));
    let labels: Vec<Vec<char>> =
        part.iter().map(|spike| age(now_s.saturating_sub(spike.at_s)).chars().collect()).collect();
    for at in 0..labels.iter().map(Vec::len).max().unwrap_or(0) {
        let line = labels.iter().map(|label| label.get(at).copied().unwrap_or(' '));
        page.extend(line.chain(['\n']));
    }
}

fn age(seconds: u64) -> String {
    match seconds {
        0..60 => format!("{seconds}s"),
        60..3_600 => format!("{}m", seconds / 60),
        3_600..86_400 => format!("{}h", seconds / 3_600),
        _ => format!("{}d", seconds / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_high_as_spikes_are_long() {
        let now_s = 1_000_000;
        let spike = |age: u64, took_ms: u64| Spike { at_s: now_s - age, took_ms };
        let spikes = [
            spike(200_000, 100),
            spike(7_300, 100),
            spike(150, 200),
            spike(59, 500),
            spike(3, 380),
        ];
        let page = draw("command", &spikes, 900, now_s);
        let lines: Vec<&str> = page.lines().collect();
        assert_eq!(lines[0], "command - high 500 ms, low 100 ms (all time high 900 ms)");
        assert_eq!(lines[1].len(), COLUMNS);
        assert_eq!(lines[2..6], ["   # ", "   |#", "  _||", "__|||"]);
        assert_eq!(lines[6..], ["     ", "22253", "dhm9s", "   s "]);
        // One alone lies at the bottom; more than a row of columns come below each other.
        let page = draw("fork", &[spike(1, 7)], 7, now_s);
        assert!(page.lines().nth(5) == Some("_"), "{page}");
        let many: Vec<Spike> = (0..160).map(|took_ms| spike(1, took_ms + 1)).collect();
        let page = draw("command", &many, 160, now_s);
        assert_eq!(page.lines().filter(|line| line.contains("ssss")).count(), 2);
        assert!(page.lines().all(|line| line.len() <= COLUMNS));
    }
}
