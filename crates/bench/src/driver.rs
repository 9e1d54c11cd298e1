//! Runs the jobs of a plan, each in a process of its own, and gathers what they report.
//!
//! A process of its own per engine and repeat keeps the kernel's counters, the resident set and
//! the allocator's state of one engine from another's figures. The driver starts its own
//! executable with its own arguments; [`JOB_VARIABLE`] in the environment tells the new process
//! to carry out that job instead, and to write [`Event`]s to its standard output, a line each.

use crate::job::{Event, Job, Observer};
use crate::on_drop::OnDrop;
use crate::plan::Plan;
use crate::report::figures::ShiftFigures;
use crate::report::{self, Row, cells, plot, table};
use crate::workload;
use crate::workload::elastic::series::TOLERANCE;
use anyhow::{Context, Result, bail, ensure};
use indicatif::{ProgressBar, ProgressStyle};
use rustix::fs::{FlockOperation, flock};
use std::collections::HashSet;
use std::fs::File;
use std::io::{BufRead, BufReader, IsTerminal, Read, Seek, SeekFrom, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use terrace_workload::usage;

/// The environment variable that carries a job, as JSON.
const JOB_VARIABLE: &str = "TERRACE_BENCH_JOB";
/// How often a job's process tells how far it is.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(200);
/// Store directories are named so, then the driver's process id.
const DIR_PREFIX: &str = "terrace-bench-";
/// How much of a failed process's standard error is shown.
const STDERR_TAIL_BYTES: i64 = 4096;

/// The job this process was started for, if it was started by the driver.
pub fn job_of_this_process() -> Result<Option<Job>> {
    match std::env::var(JOB_VARIABLE) {
        Err(_) => Ok(None),
        Ok(text) => serde_json::from_str(&text).with_context(|| format!("reading {JOB_VARIABLE}")),
    }
}

/// Carries out one job, telling events on standard output.
pub fn carry_out(job: &Job) -> Result<()> {
    usage::raise_open_file_limit();
    let _held = hold(&job.dir)?;
    let print = |event: Event| {
        let mut line = serde_json::to_string(&event).unwrap_or_default();
        line.push('\n');
        // Nobody reads any more: the driver is gone, and so is the point of measuring.
        if std::io::stdout().lock().write_all(line.as_bytes()).is_err() {
            std::process::exit(1);
        }
    };
    let observer = Observer::new(print);
    let result = telling_progress(&observer, || workload::run(job, &observer));
    observer.tell(match &result {
        Ok(()) => Event::Done(observer.rows()),
        Err(error) => Event::Failed(format!("{error:#}")),
    });
    Ok(())
}

/// Does `work` while a thread tells how far it is. A panic of `work` ends that thread, and goes on to the caller.
fn telling_progress<T>(observer: &Observer, work: impl FnOnce() -> T) -> T {
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let progress = scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                observer.tell(Event::Progress(observer.done.load(Ordering::Relaxed)));
                std::thread::park_timeout(PROGRESS_INTERVAL);
            }
        });
        let _ending = OnDrop(|| {
            over.store(true, Ordering::Relaxed);
            progress.thread().unpark();
        });
        work()
    })
}

/// Runs all jobs, then prints the table and writes the files. Jobs that fail are reported at the
/// end; what they measured before is in the file, marked, and nowhere else.
pub fn drive(plan: &Plan) -> Result<()> {
    let screen = Screen::new(plan.jobs.len());
    sweep_abandoned(&plan.dir);
    plan.notes.iter().for_each(|note| screen.say(note));
    let mut rows: Vec<Row> = Vec::new();
    let mut failures = Vec::new();
    let mut seen_options = HashSet::new();
    for (number, job) in plan.jobs.iter().enumerate() {
        let dir = tempfile::Builder::new()
            .prefix(&format!("{DIR_PREFIX}{}-", std::process::id()))
            .tempdir_in(&plan.dir)
            .with_context(|| format!("making a directory in {}", plan.dir.display()))?;
        let _held = hold(dir.path())?;
        let job = Job { dir: dir.path().to_owned(), ..job.clone() };
        screen.begin_job(number, &job);
        // What the job before left to write is no part of this one.
        usage::sync_file_system(&plan.dir)?;
        let mut told: Vec<Row> = Vec::new();
        let result = run_process(&job, &mut |event| match event {
            Event::Options(text) => {
                if seen_options.insert((job.engine, text.clone())) {
                    screen.say(&format!("{} {}", job.engine, text));
                }
            }
            Event::Note(text) => screen.say(&format!("{}: {text}", job.engine)),
            Event::Begin { what, ops } => screen.begin(&what, ops),
            Event::Progress(done) => screen.progress(done),
            Event::Row(row) => {
                screen.row(&row);
                told.push(*row);
            }
            Event::Stats(text) => screen.say(&format!("{} says:\n{text}", job.engine)),
            Event::Failed(_) | Event::Done(_) => {}
        });
        let result = all_arrived(result, &mut told);
        rows.extend(told);
        if let Err(error) = result {
            let failure = format!("{} (repeat {}): {error:#}", job.engine, job.repeat);
            screen.say(&failure);
            failures.push(failure);
        }
        dir.close().context("removing a store")?;
        if let Some(path) = &plan.json {
            report::write_json(path, &rows)?;
        }
    }
    screen.close();
    finish(plan, &rows, &failures)
}

/// Marks the rows of a job as failed, unless it ended well and all rows that it counted are there.
fn all_arrived(counted: Result<u64>, told: &mut [Row]) -> Result<()> {
    let result = counted.and_then(|count| {
        let arrived = told.len();
        ensure!(count == arrived as u64, "{arrived} of its {count} rows have arrived");
        Ok(())
    });
    told.iter_mut().for_each(|row| row.failed = result.is_err());
    result
}

fn finish(plan: &Plan, rows: &[Row], failures: &[String]) -> Result<()> {
    if rows.iter().any(|row| !row.failed) {
        writeln!(std::io::stdout(), "\n{}", table::render(rows))?;
        if let Some(path) = &plan.plot {
            plot::draw(path, rows)?;
        }
    }
    ensure!(
        failures.is_empty(),
        "{} of {} runs failed:\n  {}",
        failures.len(),
        plan.jobs.len(),
        failures.join("\n  ")
    );
    Ok(())
}

/// Starts the process of a job and hands its events on until it ends; gives how many rows it counted.
fn run_process(job: &Job, sink: &mut dyn FnMut(Event)) -> Result<u64> {
    let mut stderr = tempfile::tempfile()?;
    let mut child = Command::new(std::env::current_exe()?)
        .args(std::env::args_os().skip(1))
        .env(JOB_VARIABLE, serde_json::to_string(job)?)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(stderr.try_clone()?)
        .spawn()
        .context("starting the process of a run")?;
    let mut outcome = None;
    if let Some(stdout) = child.stdout.take() {
        for line in BufReader::new(stdout).lines() {
            // An engine may write to standard output, too; what is no event is passed over.
            match serde_json::from_str(&line?) {
                Ok(Event::Failed(text)) => outcome = Some(Err(text)),
                Ok(Event::Done(rows)) => outcome = Some(Ok(rows)),
                Ok(event) => sink(event),
                Err(_) => {}
            }
        }
    }
    let status = child.wait()?;
    match outcome {
        Some(Ok(rows)) if status.success() => Ok(rows),
        Some(Err(text)) => bail!(text),
        _ => bail!("its process ended with {status}{}", tail(&mut stderr)),
    }
}

/// The end of a file, for a message.
fn tail(file: &mut File) -> String {
    let length = file.metadata().map_or(0, |metadata| metadata.len() as i64);
    let mut text = Vec::new();
    let read = file
        .seek(SeekFrom::End(-length.min(STDERR_TAIL_BYTES)))
        .and_then(|_| file.read_to_end(&mut text));
    match read {
        Ok(bytes) if bytes > 0 => format!(": {}", String::from_utf8_lossy(&text).trim()),
        _ => String::new(),
    }
}

/// Has [`sweep_abandoned`] leave the directory of a store alone for as long as the result is kept, in all processes.
/// A file system without locks has nothing swept.
fn hold(dir: &Path) -> Result<File> {
    let file = File::open(dir).with_context(|| format!("opening {}", dir.display()))?;
    flock(&file, FlockOperation::NonBlockingLockShared).ok();
    Ok(file)
}

/// Removes what earlier drivers that were killed left in `dir`: stores whose driver is no process, and that nobody
/// holds. The process of a store may live in a namespace of its own, where numbers of processes are others.
fn sweep_abandoned(dir: &Path) {
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
    for entry in entries {
        let name = entry.file_name().to_string_lossy().into_owned();
        let owner = name
            .strip_prefix(DIR_PREFIX)
            .and_then(|rest| rest.split('-').next())
            .and_then(|id| id.parse::<u32>().ok());
        if owner.is_none_or(|id| Path::new(&format!("/proc/{id}")).exists()) {
            continue;
        }
        let Ok(store) = File::open(entry.path()) else { continue };
        if flock(&store, FlockOperation::NonBlockingLockExclusive).is_ok() {
            std::fs::remove_dir_all(entry.path()).ok();
        }
    }
}

/// The series of a row, step by step, with a bar where the hot range jumped.
fn shift_line(shift: &ShiftFigures) -> String {
    let jump = (shift.shift_after_ops / shift.series_step_ops.max(1)) as usize;
    let (before, after) = shift.series.split_at(jump.min(shift.series.len()));
    let list = |part: &[f64]| part.iter().map(|v| format!("{v:.3}")).collect::<Vec<_>>().join(" ");
    let back = shift.recovery_ops.map_or("never".to_owned(), |ops| format!("after {ops} lookups"));
    format!(
        "wasted reads per lookup, steps of {}: {} | {}; back within {TOLERANCE}x of {:.4} {back}",
        shift.series_step_ops,
        list(before),
        list(after),
        shift.steady_wasted_reads,
    )
}

/// What a row of `large-values` has to say of its own.
fn values_text(row: &Row) -> String {
    let Some(f) = &row.large_values else { return String::new() };
    let mut text = String::new();
    let mut add = |name: &str, value: Option<f64>| {
        if let Some(value) = value {
            text.push_str(&format!(", {name} {value:.2}"));
        }
    };
    add("write amplification", row.write_amp);
    add("space at most", f.space_amp_max);
    add("longest gap in ms", f.longest_gap_us.map(|us| us / 1000.0));
    add("read calls per op", f.read_calls_per_op);
    add("MiB/s", f.bytes_per_s.map(|bytes| bytes / f64::from(1 << 20)));
    text
}

/// What a row of `learned` has to say of its own.
fn learned_text(row: &Row) -> String {
    let speedup = row.learned.as_ref().and_then(|figures| figures.speedup);
    speedup.map_or(String::new(), |times| format!(", {times:.3}x of without"))
}

/// What a row of `skew` has to say of its own.
fn skew_text(row: &Row) -> String {
    let Some(f) = &row.skew else { return String::new() };
    let part =
        |name, value: Option<f64>| value.map_or(String::new(), |v| format!(", {name} {v:.3}"));
    let tables = part("write amplification without log", f.table_write_amp);
    format!("{tables}{}", part("with log", f.total_write_amp))
}

/// What the user sees meanwhile: bars on a terminal, else a line per result.
struct Screen {
    bar: ProgressBar,
    jobs: usize,
}

impl Screen {
    fn new(jobs: usize) -> Self {
        let bar = if std::io::stderr().is_terminal() {
            ProgressBar::new(0)
        } else {
            ProgressBar::hidden()
        };
        let style = ProgressStyle::with_template(
            "{prefix} {msg:16} [{bar:30}] {human_pos}/{human_len} {per_sec} {eta}",
        );
        if let Ok(style) = style {
            bar.set_style(style.progress_chars("=> "));
        }
        Self { bar, jobs }
    }

    fn say(&self, text: &str) {
        self.bar.suspend(|| {
            // The table and the files matter; a terminal that is gone does not.
            writeln!(std::io::stderr(), "{text}").ok();
        });
    }

    fn begin_job(&self, number: usize, job: &Job) {
        let variant = cells::title(job.engine.name(), job.store.variant());
        self.bar.set_prefix(format!("[{}/{}] {variant} #{}", number + 1, self.jobs, job.repeat));
    }

    fn begin(&self, what: &str, ops: u64) {
        self.bar.set_message(what.to_owned());
        self.bar.reset();
        self.bar.set_length(if ops == u64::MAX { 0 } else { ops });
    }

    fn progress(&self, done: u64) {
        self.bar.set_position(done);
    }

    fn row(&self, row: &Row) {
        if let Some(f) = &row.filters {
            let times = [("build", f.build_ns_per_key), ("hot", f.query_hot_ns)];
            let times = times.into_iter().chain([("cold", f.query_cold_ns)]);
            let times = times.filter_map(|(name, ns)| Some(format!(", {name} {:.1} ns", ns?)));
            return self.say(&format!(
                "{} #{} {}: {:.2} bits/key, FPR {:.3e}{}",
                row.engine,
                row.repeat,
                row.workload,
                f.bits_per_key,
                f.fpr,
                times.collect::<String>(),
            ));
        }
        if let Some(shift) = &row.shift {
            self.say(&shift_line(shift));
        }
        let wasted = row.wasted_reads_per_op.filter(|_| row.elastic.is_some());
        let wasted = wasted.map_or(String::new(), |reads| format!(", {reads:.4} reads wasted"));
        let more = format!("{wasted}{}{}", values_text(row), learned_text(row));
        let more = format!("{more}{}", skew_text(row));
        self.say(&format!(
            "{} #{} {}: {} op/s, p50 {:.2} us, p99 {:.2} us, {} written, RSS {}{more}",
            row.engine,
            row.repeat,
            cells::title(&row.workload, &row.variant),
            cells::count(row.ops_per_s),
            row.p50_us,
            row.p99_us,
            cells::bytes(row.bytes_written),
            cells::bytes(row.rss_bytes),
        ));
    }

    fn close(&self) {
        self.bar.finish_and_clear();
    }
}

#[cfg(test)]
mod tests;
