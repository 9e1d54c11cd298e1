//! Numbers and bars as people read them.

use indicatif::{ProgressBar, ProgressStyle};
use std::fmt::{self, Display};
use std::time::Duration;
use terrace_base::hex;

/// A count with its digits in groups of three; honours width and alignment.
pub struct Grouped(pub u64);

impl Display for Grouped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digits = self.0.to_string();
        let mut text = String::with_capacity(digits.len() + digits.len() / 3);
        for (at, digit) in digits.chars().enumerate() {
            if at > 0 && (digits.len() - at).is_multiple_of(3) {
                text.push(',');
            }
            text.push(digit);
        }
        f.pad(&text)
    }
}

/// Bytes as hex.
pub struct Hex<'a>(pub &'a [u8]);

impl Display for Hex<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "0x{}", hex::Hex(self.0))
    }
}

/// Operations per second, rounded to three significant digits.
pub fn rate(count: u64, seconds: f64) -> u64 {
    let exact = count as f64 / seconds.max(1e-9);
    let unit = 10f64.powf((exact.max(1.0).log10().floor() - 2.0).max(0.0));
    ((exact / unit).round() * unit) as u64
}

/// A bar over `total` bytes (unknown: 0) on standard error; silent if that is no terminal.
pub fn bytes_bar(total: u64, what: &str) -> ProgressBar {
    let template = match total {
        0 => "{msg} {spinner} {bytes} ({bytes_per_sec})",
        _ => "{msg} [{bar:40}] {percent}% of {total_bytes} ({bytes_per_sec}, {eta} left)",
    };
    let bar = ProgressBar::new(total).with_message(what.to_string());
    styled(bar, template)
}

/// A line on standard error that shows changing text; silent if that is no terminal.
pub fn spinner() -> ProgressBar {
    let bar = styled(ProgressBar::new_spinner(), "{spinner} {msg} ({elapsed})");
    bar.enable_steady_tick(Duration::from_millis(200));
    bar
}

fn styled(bar: ProgressBar, template: &str) -> ProgressBar {
    match ProgressStyle::with_template(template) {
        Ok(style) => bar.with_style(style.progress_chars("=> ")),
        Err(_) => bar,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_are_grouped() {
        for (count, want) in [(0, "0"), (999, "999"), (1000, "1,000"), (1234567, "1,234,567")] {
            assert_eq!(Grouped(count).to_string(), want);
        }
        assert_eq!(format!("{:>7}", Grouped(1000)), "  1,000");
    }

    #[test]
    fn rates_are_rounded() {
        assert_eq!(rate(1_234_567, 1.0), 1_230_000);
        assert_eq!(rate(7, 2.0), 4);
        assert_eq!(rate(0, 0.0), 0);
    }
}
