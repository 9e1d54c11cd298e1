//! The screen of the demo, and the same figures as JSON.

use super::data::Data;
use super::measure::{Lookups, Measured, Reads, Stretch};
use crate::level_json::level_json;
use crate::print::{Grouped, rate};
use serde_json::{Value, json};
use std::fmt::{self, Display};
use std::io::IsTerminal;
use std::path::Path;
use terrace::LevelMetrics;
use terrace_inspect::{Escaped, SizeBytes};

/// Emphasis, on a terminal that wants it.
#[derive(Clone, Copy)]
struct Style {
    colours: bool,
}

impl Style {
    fn detect() -> Self {
        let wanted = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
        Self { colours: wanted && std::io::stdout().is_terminal() }
    }

    fn wrap(self, code: &str, text: impl Display) -> String {
        match self.colours {
            true => format!("\x1b[{code}m{text}\x1b[0m"),
            false => text.to_string(),
        }
    }

    fn title(self, text: &str) -> String {
        self.wrap("1;36", format!("{text:<8}"))
    }

    fn figure(self, text: impl Display) -> String {
        self.wrap("1", text)
    }

    fn gloss(self, text: impl Display) -> String {
        self.wrap("2", text)
    }
}

/// The screen. `kept` is the directory of the store if it stays.
pub fn text(measured: &Measured, kept: Option<&Path>, data: &Data) -> String {
    Screen { m: measured, style: Style::detect(), kept, data }.to_string()
}

struct Screen<'a> {
    m: &'a Measured,
    style: Style,
    kept: Option<&'a Path>,
    data: &'a Data,
}

impl Display for Screen<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.load(f)?;
        self.levels(f)?;
        self.lookups(f)?;
        self.savings(f)?;
        self.next(f)
    }
}

impl Screen<'_> {
    fn load(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (load, s) = (&self.m.load, self.style);
        let disk: u64 = load.settled.levels.iter().map(|level| level.size_bytes).sum();
        let per_second = Grouped(rate(load.records, load.seconds)).to_string();
        writeln!(
            f,
            "{} {} package names with their summaries in {:.2} s: {} writes a second",
            s.title("Loaded"),
            Grouped(load.records),
            load.seconds,
            s.figure(per_second),
        )?;
        writeln!(
            f,
            "         {} of names and summaries take {} on disk, compressed",
            SizeBytes(load.raw_bytes),
            s.figure(SizeBytes(disk)),
        )?;
        writeln!(
            f,
            "         {} bytes written to disk for each byte loaded {}\n",
            s.figure(format!("{:.1}", load.settled.write_amplification())),
            s.gloss("(log, sorting, merging)"),
        )
    }

    fn levels(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (load, s) = (&self.m.load, self.style);
        writeln!(
            f,
            "{} {}",
            s.title("Levels"),
            s.gloss(
                "new data enters at L0; merging in the background takes it down, for fast reads"
            ),
        )?;
        let settled_after = load.settled_seconds - load.seconds;
        writeln!(
            f,
            "         {:<4} {:>35}    {:>35}",
            "",
            "when the last name was in",
            format!("settled, {settled_after:.2} s later"),
        )?;
        let rows = load.unsettled.levels.iter().zip(&load.settled.levels).enumerate();
        for (number, (before, after)) in rows {
            if before.file_count + after.file_count > 0 {
                let level = format!("L{number}");
                writeln!(f, "         {level:<4} {:>35}    {:>35}", Row(before), Row(after))?;
            }
        }
        writeln!(f)
    }

    fn lookups(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let s = self.style;
        writeln!(
            f,
            "{} {}",
            s.title("Lookups"),
            s.gloss(
                "of names as often as they are downloaded; every second one misspelled and absent"
            ),
        )?;
        writeln!(
            f,
            "         {:<29} {:>10} {:>11} {:>9} {:>9} {:>17}",
            "", "lookups/s", "half within", "99 %", "99.9 %", "disk reads/lookup"
        )?;
        for lookups in [&self.m.scarce, &self.m.cached] {
            let name = format!("{} of memory", SizeBytes(lookups.shape.memory_bytes as u64));
            for (at, stretch) in lookups.stretches.iter().enumerate() {
                self.stretch(if at == 0 { &name } else { "" }, stretch, f)?;
            }
        }
        let kernel: u64 = self.m.scarce.stretches.iter().map(|s| s.kernel_read_bytes).sum();
        if kernel == 0 {
            let note =
                "(the kernel saw no device behind this directory: its reads came from memory)";
            writeln!(f, "         {}", s.gloss(note))?;
        }
        writeln!(f)
    }

    fn stretch(&self, name: &str, stretch: &Stretch, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let threads = match stretch.threads {
            1 => "1 thread".to_string(),
            n => format!("{n} threads"),
        };
        let per_second = Grouped(rate(stretch.lookups, stretch.seconds)).to_string();
        writeln!(
            f,
            "         {name:<19}{threads:>10} {} {:>11} {:>9} {:>9} {:>17.3}",
            self.style.figure(format!("{per_second:>10}")),
            Micros(stretch.p50_us),
            Micros(stretch.p99_us),
            Micros(stretch.p999_us),
            per(stretch.reads.device_reads, stretch.lookups),
        )
    }

    fn savings(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (s, scarce) = (self.style, &self.m.scarce);
        let sums = Sums::of(scarce);
        let r = sums.reads;
        writeln!(
            f,
            "{} {}",
            s.title("Saved"),
            s.gloss(format!("with {} of memory", SizeBytes(scarce.shape.memory_bytes as u64)))
        )?;
        writeln!(
            f,
            "         filters  at least {} of the {} lookups for absent names read no data",
            s.figure(percent(sums.absent.saturating_sub(r.filter_false_positives), sums.absent)),
            Grouped(sums.absent),
        )?;
        writeln!(
            f,
            "         cache    {} of the data blocks and {} of the index and filter pieces that",
            s.figure(percent(r.data_block_hits, r.data_block_hits + r.data_block_misses)),
            s.figure(percent(r.metadata_hits, r.metadata_hits + r.metadata_misses)),
        )?;
        writeln!(f, "                  lookups needed were in memory already")?;
        let whole = self.m.check.index_bytes + self.m.check.filter_bytes;
        writeln!(
            f,
            "         index    {} stay in memory; in one piece, index and filters would take {}",
            s.figure(SizeBytes(scarce.pinned_bytes)),
            s.figure(SizeBytes(whole)),
        )?;
        let pieces = self.m.check.index_partitions + self.m.check.filter_partitions;
        writeln!(
            f,
            "                  {}",
            s.gloss(format!("(they are cut into {} pieces, read when needed)", Grouped(pieces))),
        )?;
        writeln!(
            f,
            "{} {} entries and every checksum, once more from disk: sound\n",
            s.title("Checked"),
            Grouped(self.m.check.entries),
        )
    }

    fn next(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let program = std::env::args().next().unwrap_or_else(|| "terrace".into());
        let popular = &self.data.packages[self.data.most_popular].name;
        let dir = self.kept.map_or("./demo-store".to_string(), |dir| dir.display().to_string());
        let mut lines = Vec::new();
        if self.kept.is_none() {
            lines.push((format!("demo --dir {dir}"), "the same, and keep the store for these:"));
        }
        lines.push((format!("get {} --dir {dir}", Escaped(popular)), "downloads and summary"));
        lines.push((format!("scan --prefix react- --limit 9 --dir {dir}"), "names in order"));
        lines.push((format!("inspect lsm {dir}"), "every file of every level"));
        lines.push((format!("stats --dir {dir}"), "counters and latencies"));
        writeln!(f, "{}", self.style.title("Try next"))?;
        let width = lines.iter().map(|(command, _)| command.len()).max().unwrap_or(0);
        for (command, gloss) in lines {
            writeln!(f, "  {program} {command:<width$}  {}", self.style.gloss(gloss))?;
        }
        Ok(())
    }
}

/// A level in one column.
struct Row<'a>(&'a LevelMetrics);

impl Display for Row<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let level = self.0;
        f.pad(&match level.file_count {
            0 => "-".to_string(),
            count => format!(
                "{:>9} names, {count:>2} {:<5} {:>9}",
                Grouped(level.entry_count),
                if count == 1 { "file" } else { "files" },
                SizeBytes(level.size_bytes),
            ),
        })
    }
}

/// Both stretches together.
struct Sums {
    lookups: u64,
    absent: u64,
    reads: Reads,
}

impl Sums {
    fn of(lookups: &Lookups) -> Self {
        let none = Self { lookups: 0, absent: 0, reads: Reads::default() };
        lookups.stretches.iter().fold(none, |sums, stretch| Self {
            lookups: sums.lookups + stretch.lookups,
            absent: sums.absent + stretch.absent,
            reads: sums.reads.plus(stretch.reads),
        })
    }
}

/// A time in the unit that suits it.
struct Micros(f64);

impl Display for Micros {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&match self.0 {
            us if us < 100.0 => format!("{us:.1} µs"),
            us if us < 1000.0 => format!("{us:.0} µs"),
            us => format!("{:.1} ms", us / 1000.0),
        })
    }
}

fn per(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

fn percent(part: u64, whole: u64) -> String {
    format!("{:.1} %", 100.0 * per(part, whole))
}

/// All figures.
pub fn json(m: &Measured) -> Value {
    let load = &m.load;
    json!({
        "load": {
            "records": load.records,
            "raw_bytes": load.raw_bytes,
            "seconds": load.seconds,
            "settled_seconds": load.settled_seconds,
            "ops_per_s": per_s(load.records, load.seconds),
            "write_amp": load.settled.write_amplification(),
            "disk_bytes": load.settled.levels.iter().map(|level| level.size_bytes).sum::<u64>(),
            "levels_before": load.unsettled.levels.iter().map(level_json).collect::<Vec<_>>(),
            "levels": load.settled.levels.iter().map(level_json).collect::<Vec<_>>(),
        },
        "scarce": lookups_json(&m.scarce),
        "cached": lookups_json(&m.cached),
        "check": {
            "ssts": m.check.ssts,
            "entries": m.check.entries,
            "index_bytes": m.check.index_bytes,
            "filter_bytes": m.check.filter_bytes,
            "index_partitions": m.check.index_partitions,
            "filter_partitions": m.check.filter_partitions,
        },
    })
}

fn lookups_json(lookups: &Lookups) -> Value {
    let sums = Sums::of(lookups);
    json!({
        "memory_bytes": lookups.shape.memory_bytes,
        "direct_io": lookups.shape.direct,
        "pinned_bytes": lookups.pinned_bytes,
        "lookups": sums.lookups,
        "stretches": lookups.stretches.iter().map(stretch_json).collect::<Vec<_>>(),
    })
}

fn stretch_json(s: &Stretch) -> Value {
    let r = &s.reads;
    json!({
        "threads": s.threads,
        "lookups": s.lookups,
        "found": s.found,
        "absent": s.absent,
        "seconds": s.seconds,
        "ops_per_s": per_s(s.lookups, s.seconds),
        "p50_us": s.p50_us,
        "p99_us": s.p99_us,
        "p999_us": s.p999_us,
        "device_reads_per_op": per(r.device_reads, s.lookups),
        "kernel_read_bytes": s.kernel_read_bytes,
        "device_reads": r.device_reads,
        "filter_checks": r.filter_checks,
        "filter_negatives": r.filter_negatives,
        "filter_false_positives": r.filter_false_positives,
        "data_block_hits": r.data_block_hits,
        "data_block_misses": r.data_block_misses,
        "metadata_hits": r.metadata_hits,
        "metadata_misses": r.metadata_misses,
    })
}

fn per_s(count: u64, seconds: f64) -> f64 {
    count as f64 / seconds.max(1e-9)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_and_shares_are_readable() {
        let shown: Vec<String> =
            [0.52, 99.94, 312.4, 1500.0].map(|us| Micros(us).to_string()).to_vec();
        assert_eq!(shown, ["0.5 µs", "99.9 µs", "312 µs", "1.5 ms"]);
        assert_eq!(percent(1, 3), "33.3 %");
        assert_eq!(percent(0, 0), "0.0 %");
    }

    #[test]
    fn colours_are_only_where_wanted() {
        assert_eq!(Style { colours: false }.figure("7"), "7");
        assert_eq!(Style { colours: true }.figure("7"), "\x1b[1m7\x1b[0m");
    }
}
